"""The pairs to register: folders of images and label maps with a list of pairs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import SimpleITK as sitk

from morphseek import images
from morphseek.scoring.labels import merge_labels
from morphseek.studies import read_pairs
from morphseek.studies.folders import find_file
from morphseek.studies.label_table import read_labels_csv


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Pairs of one kind: ``folder/images``, ``folder/labels``, (fixed, moving) names, and how
    labels are merged before scoring.
    """

    name: str
    folder: Path
    pairs: list[tuple[str, str]]
    two_modalities: bool
    merge: dict[int, int] | None

    def image(self, name: str) -> Path:
        return find_file(self.folder, name, "images").resolve()

    def labels(self, name: str) -> sitk.Image:
        read = images.read(find_file(self.folder, name, "labels"), f"labels of {name}")
        return sitk.Cast(merge_labels(read, self.merge).to_sitk(), sitk.sitkUInt32)


def read(spec: str, count: int | None, two_modalities: bool) -> DataSet:
    """Read NAME=FOLDER or NAME=FOLDER:SUBSET.

    The folder holds images/, labels/ (the same names), split.json with lists of pairs, of which
    SUBSET names one (default: "test"), and, to merge labels, labels.csv (columns id, name,
    structure). `count` keeps only the first pairs.
    """
    name, _, rest = spec.partition("=")
    path, _, subset = rest.partition(":")
    if not name or not path:
        raise ValueError(f"--data {spec}: write NAME=FOLDER or NAME=FOLDER:SUBSET")
    folder = Path(path)
    table = folder / "labels.csv"
    merge = read_labels_csv(table)[0] if table.exists() else None
    listed = read_pairs(folder / "split.json", data=folder, subset=subset or "test")[:count]
    return DataSet(
        name,
        folder,
        [(pair.files["fixed"], pair.files["moving"]) for pair in listed],
        two_modalities,
        merge,
    )
