"""No text of a header leaves the image: no name of a patient, a clinic or a study reaches a result,
a message, the cache or the doctor. Everything written has only the content of headers that ALLOWED
lists.
"""

import gzip
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from helpers import Command
from morphseek import images, phantom

NAME = "QUXMANN^ZYPHORA"  # long enough that voxels do not spell it by chance
ALLOWED = {
    "size, spacing, origin, direction": "report.json, transform.h5, images, messages",
    "type and number of the voxels": "images, messages",
    "form codes and units of a NIfTI": "what apply returns for a nibabel image, in memory",
    "a field of the format that is not understood": "the message that refuses the file",
    "names of files": "pages, tables, messages: they are the user's words, not the header's",
}

TEXTS = (
    "0008|0050", "0008|0080", "0008|0081", "0008|0090", "0008|1010", "0008|1030", "0008|103e",
    "0008|1050", "0008|1070", "0008|1090", "0010|0010", "0010|0020", "0010|1000", "0010|1001",
    "0010|1040", "0010|2154", "0010|2160", "0010|21b0", "0010|4000", "0018|0015", "0018|1000",
    "0018|1030", "0020|0010", "0020|4000", "0032|1032", "0032|1060", "0040|0253", "0040|0254",
    "0040|1004",
)  # fmt: skip
UID = "1.2.826.0.1.3680043.2.1125.777"


def dicom(image: images.Image, folder: Path, uid: str = UID) -> Path:
    folder.mkdir(exist_ok=True)
    volume = sitk.Cast(image.to_sitk(), sitk.sitkInt16)
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    for k in range(volume.GetDepth()):
        piece = volume[:, :, k]
        corner = volume.TransformIndexToPhysicalPoint((0, 0, k))
        tags = dict.fromkeys(TEXTS, NAME) | {
            "0008|0060": "CT", "0008|0020": "19770707", "0010|0030": "19440404",
            "0020|000d": UID + ".1", "0020|000e": uid, "0020|0013": str(k),
            "0020|0032": "\\".join(map(str, corner)),
            "0020|0037": "\\".join(map(str, np.array(image.direction).reshape(3, 3).T[:2].ravel())),
        }  # fmt: skip
        for tag, value in tags.items():
            piece.SetMetaData(tag, value)
        writer.SetFileName(str(folder / f"{uid[-1]}{k:03}.dcm"))
        writer.Execute(piece)
    return folder


def nrrd(image: images.Image, path: Path) -> Path:
    images.write(path, image, compress=False)
    header, voxels = path.read_bytes().split(b"\n\n", 1)
    lines = [f"content: {NAME}", "measurement frame: (1,0,0) (0,1,0) (0,0,1)", f"# {NAME}"]
    lines += [f"{key}:={NAME}" for key in ("patient", "dicom_0010_0010", NAME, "ITK_FileNotes")]
    path.write_bytes(header + b"\n" + "\n".join(lines).encode() + b"\n\n" + voxels)
    return path


def meta(image: images.Image, path: Path) -> Path:
    images.write(path, image, compress=False)
    first, rest = path.read_bytes().split(b"\n", 1)
    lines = [f"Comment = {NAME}", f"Name = {NAME}", f"PatientName = {NAME}", f"Modality = {NAME}"]
    path.write_bytes(first + b"\n" + "\n".join(lines).encode() + b"\n" + rest)
    return path


def nifti(image: images.Image, path: Path) -> Path:
    images.write(path, image)
    content = bytearray(gzip.decompress(path.read_bytes()))
    for offset, length in ((4, 10), (14, 18), (148, 80), (228, 24), (328, 16)):
        struct.pack_into(f"{length}s", content, offset, NAME.encode())
    path.write_bytes(gzip.compress(bytes(content)))
    return path


MAKERS: dict[str, Callable[[images.Image, Path], Path]] = {
    "series": dicom,
    "image.nrrd": nrrd,
    "image.mha": meta,
    "image.nii.gz": nifti,
}


def content_of(folder: Path) -> bytes:
    """Return the unpacked content of a folder's files."""
    found = b""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            found += gzip.decompress(content) if path.name.endswith(".gz") else content
    return found


SECRETS = ("QUXMANN", "ZYPHORA", "19770707", "19440404", UID)


@pytest.mark.parametrize("kind", MAKERS)
def test_no_name_leaves(kind: str, command: Command, tmp_path: Path):
    pair = phantom.make_pair(size=20)
    for which in ("fixed", "moving"):
        (tmp_path / which).mkdir()
    fixed, moving = (
        MAKERS[kind](getattr(pair, which), tmp_path / which / kind) for which in ("fixed", "moving")
    )
    assert NAME.encode() in content_of(tmp_path / "fixed")
    out = tmp_path / "out"
    quick = ("--model", "none", "--refine", "0", "--search", "off")
    said = command("register", fixed, moving, "--out", out, *quick, "--uncertainty", "--explain")
    said += command(
        "apply", "--transform", out / "transform.h5", "-i", moving, "-r", fixed,
        "-o", out / "applied.nrrd",
    )  # fmt: skip
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(f"fixed,moving,id\n{fixed},{moving},one\n")
    said += command("pairs", pairs, "--out", out / "batch", *quick)
    written = content_of(out) + content_of(tmp_path / "cache") + said.encode()
    assert len(written) > 1 << 17
    for secret in SECRETS:
        assert secret.encode() not in written, secret


def test_a_message_has_no_name(command: Command, tmp_path: Path):
    """MorphSeek, ITK or GDCM refuses each of these files."""
    image = images.Image(np.random.default_rng(0).random((6, 7, 8)).astype(np.float32) * 900)
    broken = {kind: MAKERS[kind](image, tmp_path / f"{i}-{kind}") for i, kind in enumerate(MAKERS)}
    dicom(image, broken["series"], UID + ".2")  # two in one folder
    for kind in ("image.nrrd", "image.mha"):
        broken[kind].write_bytes(broken[kind].read_bytes()[:-100])
    packed = broken["image.nii.gz"]
    packed.write_bytes(gzip.compress(gzip.decompress(packed.read_bytes())[:-100]))
    gap = dicom(image, tmp_path / "gap")
    (gap / "7002.dcm").unlink(), (gap / "7003.dcm").unlink()
    flat = dicom(images.Image(image.array * 0), tmp_path / "flat")
    sound = tmp_path / "sound.nrrd"
    shutil.copyfile(nrrd(image, tmp_path / "a.nrrd"), sound)
    for path in (*broken.values(), gap, flat):
        said = command("register", path, sound, "--out", tmp_path / "out", expect=3)
        for secret in SECRETS:
            assert secret not in said, said
    process = command.start("info", "doctor", errors="replace")  # well or not
    said = "".join(process.communicate(timeout=120))
    assert not any(secret in said for secret in SECRETS)
