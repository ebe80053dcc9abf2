"""What people look at: the page of a pair, the index of many, pictures for notebooks and papers.

A page is drawn by numpy alone; only :meth:`morphseek.RegistrationResult.plot` needs Matplotlib.
"""

from __future__ import annotations

from .cohort import CohortRow, write_index
from .page import write_report
from .places import worst_places

__all__ = ["CohortRow", "worst_places", "write_index", "write_report"]
