"""``python -m morphseek.training`` is ``morphseek train``; torchrun needs a module."""

from .cli import app

app()
