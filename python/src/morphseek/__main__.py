"""``python -m morphseek`` is the ``morphseek`` command."""

from .cli import main

if __name__ == "__main__":
    main()
