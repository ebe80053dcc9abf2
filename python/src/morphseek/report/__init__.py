"""What people look at: the page of a pair, the index of many, pictures for notebooks and papers.

A page is drawn by numpy alone; only :meth:`morphseek.Registration.plot` needs Matplotlib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .cohort import CohortRow, write_index
    from .page import write_report
    from .places import worst_places

__getattr__ = lazy(
    __name__,
    {
        "CohortRow": ".cohort",
        "worst_places": ".places",
        "write_index": ".cohort",
        "write_report": ".page",
    },
)

__all__ = ["CohortRow", "worst_places", "write_index", "write_report"]
