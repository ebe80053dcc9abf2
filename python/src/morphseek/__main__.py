"""``python -m morphseek`` is the ``morphseek`` command."""

from .cli import app

app(prog_name="morphseek")
