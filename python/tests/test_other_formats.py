"""Files that ITK reads without a look: in the right place, whole and upright, or refused."""

import gzip
import shutil
import struct
from pathlib import Path

import nibabel
import numpy as np
import PIL.Image
import pytest
import SimpleITK as sitk

from helpers import unreadable
from morphseek import images

STORED = np.random.default_rng(0).integers(1, 250, (12, 40, 40)).astype(np.int16)


def write(path: Path) -> Path:
    """Write a volume or, to a format of pictures, its first slice."""
    image = sitk.GetImageFromArray(STORED)
    if path.suffix in (".bmp", ".jpg", ".png"):
        image = sitk.Cast(image[:, :, 0], sitk.sitkUInt8)
    sitk.WriteImage(image, str(path))
    return path


@pytest.mark.parametrize("ending", ["tif", "vtk", "gipl", "mrc", "bmp", "jpg", "png"])
def test_cut_short(ending: str, tmp_path: Path):
    path = write(tmp_path / f"a.{ending}")
    if ending != "jpg":
        whole = np.squeeze(images.read(path).array)
        np.testing.assert_allclose(whole, STORED[0] if whole.ndim == 2 else STORED, atol=1e-3)
    for share in (0.3, 0.5, 0.98):
        data = path.read_bytes()
        cut = tmp_path / f"cut.{ending}"
        cut.write_bytes(data[: int(share * len(data))])
        unreadable("cut", images.read, cut)


@pytest.mark.parametrize(
    "tag, value, says",
    [(339, 3, "floats of 16 bits"), (274, 3, "turned or mirrored"), (274, 6, "turned or mirrored")],
)
def test_tiff_that_no_reader_knows(tag: int, value: int, says: str, tmp_path: Path):
    path = write(tmp_path / "a.tif")
    data = bytearray(path.read_bytes())
    entry = struct.pack("<HHI", tag, 3, 1)
    assert entry in data
    at = data.index(entry) + len(entry)
    data[at : at + 2] = struct.pack("<H", value)
    path.write_bytes(data)
    unreadable(says, images.read, path)


OME = '<OME><Image><Pixels SizeT="1" PhysicalSizeX="{0}" PhysicalSizeY="{0}"{1}/></Image></OME>'
SIZES = {
    "OME": (OME.format(0.65, ' PhysicalSizeZ="2"'), (0.00065, 0.00065, 0.002), 0),
    "OME, mm": (
        OME.format(0.65, ' PhysicalSizeXUnit="mm" PhysicalSizeYUnit="mm"'),
        (0.65, 0.65, 1),
        1,
    ),
    "ImageJ": ("ImageJ=1\nunit=micron\nspacing=2.0\n", (0.0005, 0.00025, 0.002), 0),
    "ImageJ, escaped": ("ImageJ=1\nunit=\\u00B5m\nspacing=2.0\n", (0.0005, 0.00025, 0.002), 0),
    "ImageJ, cm": ("ImageJ=1\nunit=cm\n", (5, 2.5, 1), 1),
    "ImageJ, pixels": ("ImageJ=1\nunit=pixel\n", (1, 1, 1), 1),
    "ImageJ, feet": ("ImageJ=1\nunit=foot\n", (1, 1, 1), 1),
    "no number": (OME.format("wide", ""), (1, 1, 1), 1),
}  # fmt: skip


@pytest.mark.parametrize("what", SIZES)
def test_sizes_that_a_tiff_notes(what: str, tmp_path: Path):
    """As OME's and ImageJ's documents say; ITK passes over them. 2 and 4 pixels a unit."""
    text, spacing, doubts = SIZES[what]
    page = PIL.Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4))
    tags = {270: text, 282: 2.0, 283: 4.0, 296: 1}
    page.save(tmp_path / "a.tif", save_all=True, append_images=[page], tiffinfo=tags)
    read = images.read(tmp_path / "a.tif")
    np.testing.assert_allclose(read.spacing, spacing)
    assert read.array.shape == (2, 3, 4) and len(read.doubts) == doubts


@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_a_picture_that_viewers_turn(ending: str, tmp_path: Path):
    """Their rows lie otherwise than they are stored; ITK does not look."""
    picture = PIL.Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4) * 20)
    for order in "<>":
        for turn in range(9):
            exif = PIL.Image.Exif()
            exif.endian = order
            exif[274], exif[271] = turn, "a camera"
            picture.save(tmp_path / f"a.{ending}", exif=exif)
            if turn in (0, 1):
                assert images.read(tmp_path / f"a.{ending}").array.shape == (1, 3, 4)
            else:
                unreadable("turned or mirrored", images.read, tmp_path / f"a.{ending}")


def test_a_jpeg_is_no_label_map(tmp_path: Path):
    path = write(tmp_path / "labels.jpg")
    for name in ("fixed labels", "moving mask", "rigid regions"):
        unreadable("labels.jpg .*JPEG blurs the numbers", images.read, path, name)
    assert images.read(path, "moving").array.shape == (1, 40, 40)
    assert images.read(write(tmp_path / "labels.png"), "fixed labels").array.shape == (1, 40, 40)


@pytest.mark.parametrize("ending, voxels", [("mhd", "raw"), ("nhdr", "raw"), ("hdr", "img")])
def test_half_of_an_image_in_two_files(ending: str, voxels: str, tmp_path: Path):
    path, half = write(tmp_path / f"a.{ending}"), tmp_path / f"a.{voxels}"
    if voxels == "raw":
        unreadable(f"voxels alone; give their header, a.{ending}", images.read, half)
    else:
        assert np.array_equal(images.read(half).array, STORED)
    moved = half.rename(tmp_path / f"b.{voxels}")
    unreadable(f"its voxels are in a.{voxels}, which is not there", images.read, path)
    says = "header is in b.hdr, which is not there" if voxels == "img" else "none that ITK knows"
    unreadable(says, images.read, moved)


@pytest.mark.parametrize(
    "ending, before, named",
    [("mhd", "ElementDataFile", "HeaderSize = {}\n"), ("nhdr", "data file", "byte skip: {}\n")],
)
def test_more_voxels_than_a_header_says(ending: str, before: str, named: str, tmp_path: Path):
    """A header that is written by hand, of a file that begins with something else."""
    path, voxels = write(tmp_path / f"a.{ending}"), tmp_path / "a.raw"
    header = path.read_text()
    assert images.read(path).doubts == ()
    voxels.write_bytes(b"x" * 76 + voxels.read_bytes())
    (doubt,) = images.read(path).doubts
    assert "a.raw holds 76 more bytes than its header says" in doubt
    for skip in (-1, 76):
        path.write_text(header.replace(before, named.format(skip) + before))
        read = images.read(path)
        assert read.doubts == () and np.array_equal(read.array, STORED)


def test_a_picture_with_transparency(tmp_path: Path):
    PIL.Image.new("LA", (4, 3)).save(tmp_path / "a.png")
    unreadable("a.png cannot be read: .*save it in plain grey", images.read, tmp_path / "a.png")


NUMBERS = np.arange(64, dtype=np.uint8).reshape(8, 8)


def picture(what: str) -> PIL.Image.Image:
    """Return the numbers 0 to 63 in grey, as equal colours, or as those of a palette."""
    grey = PIL.Image.fromarray(NUMBERS)
    if what in ("grey", "white"):
        return grey
    if what == "rgb":
        return PIL.Image.merge("RGB", [grey] * 3)
    indexed = PIL.Image.frombytes("P", (8, 8), NUMBERS.tobytes())
    indexed.putpalette(
        [i if what == "greys" else i * k % 256 for i in range(256) for k in (1, 3, 7)]
    )
    return indexed


@pytest.mark.parametrize(
    "what, ending, says",
    [
        ("grey", "tif", ""), ("rgb", "tif", ""), ("rgb", "png", ""), ("grey", "bmp", ""),
        ("greys", "png", ""), ("greys", "tif", "palette"), ("palette", "tif", "palette"),
        ("palette", "png", "palette"), ("white", "tif", "looks inverted"),
    ],
)  # fmt: skip
def test_what_the_numbers_of_a_picture_stand_for(what: str, ending: str, says: str, tmp_path: Path):
    """Where the voxels are not the numbers that Pillow wrote, it is said."""
    path = tmp_path / f"a.{ending}"
    tags = {"tiffinfo": {262: 0} if what == "white" else {}} if ending == "tif" else {}
    picture(what).save(path, dpi=(254, 254), **tags)
    image = images.read(path)
    assert bool(image.doubts) == bool(says) and says in "".join(image.doubts)
    assert np.array_equal(image.array[0], NUMBERS) == (not says)


@pytest.mark.parametrize("what", ["ring", "count", "text"])
def test_tiff_that_is_damaged(what: str, tmp_path: Path):
    data = bytearray(write(tmp_path / "a.tif").read_bytes())
    (first,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, first)
    if what == "ring":
        struct.pack_into("<I", data, first + 2 + 12 * count, first)
    else:
        at = data.index(struct.pack("<H", 279), first)  # the lengths of its strips
        struct.pack_into("<HI", data, at + 2, *((16, 2**32 - 1) if what == "count" else (2, 1)))
    (tmp_path / "a.tif").write_bytes(data)
    unreadable("damaged|cut short", images.read, tmp_path / "a.tif")


def test_vtk(tmp_path: Path):
    head = "# vtk DataFile Version 3.0\na\nASCII\nDATASET STRUCTURED_POINTS\nDIMENSIONS 2 2 2\n"
    head += "{}ORIGIN 0 0 0\n{} 8\nSCALARS a short\nLOOKUP_TABLE default\n0 1 2 3 4 5 6 7\n"
    for spacing, doubts in (("SPACING 1 1 1\n", 0), ("", 1)):
        (tmp_path / "a.vtk").write_text(head.format(spacing, "POINT_DATA"))
        image = images.read(tmp_path / "a.vtk")
        assert image.array.ravel().tolist() == [*range(8)] and len(image.doubts) == doubts
    (tmp_path / "a.vtk").write_text(head.format("SPACING 1 1 1\n", "CELL_DATA"))
    unreadable("of cells, not of points", images.read, tmp_path / "a.vtk")


def test_minc_lies_where_nibabel_lays_it():
    path = Path(nibabel.__file__).parent / "tests" / "data" / "small.mnc"
    if not path.exists():
        pytest.skip("NOT TESTED: this nibabel has no small.mnc")
    ours, theirs = images.read(path), nibabel.load(path)
    corner = theirs.affine @ (0, 0, 0, 1) * (-1, -1, 1, 1)
    assert ours.grid.origin == pytest.approx(corner[:3])
    z, y, x = 3, 20, 11
    place = theirs.affine @ (z, y, x, 1) * (-1, -1, 1, 1)
    assert ours.grid.to_physical(np.array([[x, y, z]]))[0] == pytest.approx(place[:3])
    assert ours.array[z, y, x] == pytest.approx(theirs.get_fdata()[z, y, x])


@pytest.mark.parametrize("origin", [(0, 0, 0), (2, 3, 4)])
def test_analyze_lies_where_nibabel_lays_it(origin: tuple[int, ...], tmp_path: Path):
    image = nibabel.Spm99AnalyzeImage(STORED[:6, :7, :8], None)
    image.header.set_zooms((2, 3, 4))
    image.header["origin"][:3] = origin
    image.to_filename(tmp_path / "a.img")
    (tmp_path / "a.mat").unlink(missing_ok=True)
    ours, theirs = images.read(tmp_path / "a.img"), images.read(nibabel.load(tmp_path / "a.img"))
    assert ours.grid == theirs.grid and (ours.array == theirs.array).all()
    assert "left from right" in ours.doubts[0]
    (tmp_path / "a.mat").touch()
    assert "a.mat of SPM" in images.read(tmp_path / "a.img").doubts[1]


def test_pairs_in_capitals(tmp_path: Path):
    nibabel.Nifti1Pair(STORED.T, np.diag([2, 3, 4, 1])).to_filename(tmp_path / "a.img")
    for ending in ("hdr", "img"):
        shutil.move(tmp_path / f"a.{ending}", tmp_path / f"B.{ending.upper()}")
    for name in ("B.HDR", "B.IMG"):
        assert (images.read(tmp_path / name).array == STORED).all()
    with open(tmp_path / "B.IMG", "r+b") as file:
        file.truncate(100)
    for name in ("B.HDR", "B.IMG"):
        unreadable("B.IMG is cut short: 100 of 38400", images.read, tmp_path / name)
    (tmp_path / "B.IMG").unlink()
    unreadable("voxels are in B.IMG, which is not there", images.read, tmp_path / "B.HDR")


def test_the_given_compression_is_read(tmp_path: Path):
    for value, ending in ((1, ""), (2, ".gz")):
        folder = tmp_path / str(value)
        folder.mkdir()
        images.write(folder / f"a.img{ending}", images.read(np.full((3, 4, 5), value, np.int16)))
        for path in folder.iterdir():
            path.rename(tmp_path / path.name)
    for value, ending in ((1, ""), (2, ".gz")):
        for part in ("hdr", "img"):
            assert images.read(tmp_path / f"a.{part}{ending}").array.max() == value


@pytest.mark.parametrize(
    "content, says",
    [
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        (b"<html><body>Log in</body></html>", "a page of the web"),
        (b"\0" * 200, "no whole header of a NIfTI"),
        (gzip.compress(b"\0" * 200), "no whole header of a NIfTI"),
    ],
)
def test_what_is_no_image(content: bytes, says: str, tmp_path: Path):
    (tmp_path / "a.nii.gz").write_bytes(content)
    unreadable(says, images.read, tmp_path / "a.nii.gz")


def test_a_wrong_checksum_is_no_cut(tmp_path: Path):
    path = tmp_path / "a.nii.gz"
    nibabel.Nifti1Image(STORED, np.eye(4)).to_filename(path)
    data = bytearray(path.read_bytes())
    data[-6] ^= 255
    path.write_bytes(data)
    unreadable("do not match their checksum; copy it again", images.read, path)
