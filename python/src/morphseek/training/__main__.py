"""``python -m morphseek.training`` is ``morphseek train``; torchrun needs a module."""

from .._streams import open_streams
from .cli import app

open_streams()
app()
