"""What people look at: the page of a pair, the index of many, pictures for notebooks and papers.

A page is drawn by numpy alone; only :meth:`morphseek.Registration.plot` needs Matplotlib.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
