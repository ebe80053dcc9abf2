"""Helpers of the make_golden.py scripts: grids, smooth random images and fields, and the JSON that
package golden reads.
"""

import base64
import json
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from scipy.ndimage import gaussian_filter


def rotation(rng, degrees):
    """A rotation matrix about a random axis."""
    k = rng.normal(size=3)
    k /= np.linalg.norm(k)
    cross = np.array([[0, -k[2], k[1]], [k[2], 0, -k[0]], [-k[1], k[0], 0]])
    a = np.deg2rad(degrees)
    return np.eye(3) + np.sin(a) * cross + (1 - np.cos(a)) * cross @ cross


def grid(size, spacing, center, direction=np.eye(3)):
    """An empty SimpleITK image whose centre lies at `center`."""
    image = sitk.Image([int(n) for n in size], sitk.sitkFloat32)
    image.SetSpacing([float(s) for s in spacing])
    image.SetDirection(np.asarray(direction, float).ravel())
    half = (np.array(size) - 1) / 2 * spacing
    image.SetOrigin(np.asarray(center, float) - np.asarray(direction) @ half)
    return image


def like(array, image):
    """`array` (z, y, x[, 3]) as an image on the grid of `image`."""
    out = sitk.GetImageFromArray(array, isVector=array.ndim == 4)
    out.SetSpacing(image.GetSpacing())
    out.SetOrigin(image.GetOrigin())
    out.SetDirection(image.GetDirection())
    return out


def smooth(rng, image, sigma, amplitude):
    """A smooth random image on the grid of `image`, largest magnitude `amplitude`."""
    a = gaussian_filter(rng.normal(size=image.GetSize()[::-1]), sigma)
    return like((a * amplitude / np.abs(a).max()).astype(np.float32), image)


def smooth_field(rng, image, sigma, amplitude):
    """A smooth random displacement field in mm (64-bit vectors holding 32-bit values, as ITK's
    transform wants them).
    """
    planes = [sitk.GetArrayFromImage(smooth(rng, image, sigma, amplitude)) for _ in range(3)]
    return like(np.stack(planes, -1).astype(np.float64), image)


def geometry(image):
    return {
        "Size": image.GetSize(),
        "Spacing": image.GetSpacing(),
        "Origin": image.GetOrigin(),
        "Direction": image.GetDirection(),
    }


def floats(array):
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()


def packed(image):
    return {"Grid": geometry(image), "Data": floats(sitk.GetArrayFromImage(image))}


def affine(transform):
    """An sitk.AffineTransform as the engine's Affine: p -> M p + T."""
    m, c, t = (
        np.array(v)
        for v in (transform.GetMatrix(), transform.GetCenter(), transform.GetTranslation())
    )
    return {"M": list(m), "T": list(t + c - m.reshape(3, 3) @ c)}


def write(script, content):
    path = Path(script).with_name("golden.json")
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(path, path.stat().st_size, "bytes")
