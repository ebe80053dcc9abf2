"""Training of MorphSeek registration networks in PyTorch (``pip install morphseek[training]``)."""
