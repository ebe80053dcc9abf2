"""Files of options: ``morphseek.register(fixed, moving, preset=Path("ours.json"))`` takes them."""

from ._engine.options import load_preset as load, save_preset as save

__all__ = ["load", "save"]
