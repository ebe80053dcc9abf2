"""The package's logger, "morphseek": silent unless the program that uses it sets logging up."""

from __future__ import annotations

import logging

log = logging.getLogger("morphseek")
log.addHandler(logging.NullHandler())
