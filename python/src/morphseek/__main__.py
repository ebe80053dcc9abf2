"""``python -m morphseek`` is the ``morphseek`` command."""

from .cli import app

if __name__ == "__main__":
    app(prog_name="morphseek")
