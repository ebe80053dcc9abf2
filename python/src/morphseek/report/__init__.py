"""What people look at: the page of a pair, the index of many, and pictures for notebooks and papers.

Names load when they are first used; a page needs neither Matplotlib nor SciPy.
"""

from __future__ import annotations

from .cohort import CohortRow, write_index
from .page import write_report

__all__ = ["CohortRow", "write_index", "write_report"]
