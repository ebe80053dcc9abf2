"""Moved to images, transforms and files. The old names still work and warn."""

from __future__ import annotations

from ._moved import moved

__getattr__ = moved(
    __name__,
    {
        "Image": "images.Image",
        "ImageLike": "images.ImageLike",
        "read": "images.read",
        "read_on": "images.read_on",
        "write_image": "images.write",
        "read_vectors": "images.read_vectors",
        "index_to_physical": "images.index_to_physical",
        "placed": "images.placed",
        "grid_of": "images.grid_of",
        "as_kind_of": "images.as_kind_of",
        "parts": "images.parts",
        "check_apart": "images.check_apart",
        "read_transform": "transforms.read",
        "write_transform": "transforms.write",
        "linear_part": "transforms.linear_part",
        "write_text": "_files.write_text",
        "write_array": "_files.write_array",
        "replacing": "_files.replacing",
        "output_folder": "_files.output_folder",
        "remove_left": "_files.settle",
        "at_once": "_files.at_once",
    },
)
