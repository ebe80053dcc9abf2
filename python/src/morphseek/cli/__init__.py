"""The ``morphseek`` command, a file a command.

Exit codes: 0 done; 2 wrong usage; 3 an input; 4 a model; 5 the runtime, a device or memory; 6 the
output; 7 a verdict that is not good, with ``--strict`` alone; 130 cancelled, 143 by SIGTERM,
129 by SIGHUP; 1 a defect.
"""

# their order is that of the help
from . import register, apply, transform, pairs, motion, build_template, propagate_labels  # noqa: F401, I001
from . import morphometry, correct_epi, bids, demo, info, train  # noqa: F401
from ._command import app
from ._entry import main

__all__ = ["app", "main"]
