"""Made-up pairs with a known truth: a random anatomy and two subjects of it, each with its own
contrast.

A network that is trained only on these pairs has seen no patient and no scanner, so it depends on
no contrast (SynthMorph, Hoffmann et al., IEEE TMI 2022; SynthSeg, Billot et al., Medical Image
Analysis 2023). A pair is made in four steps:

1. *Anatomy.* A head, a torso, a limb or an abstract medley, whose parts have random sizes and
   places, or are missing: nested layers (skin, skull, cortex), organs, bones and vessels as tubes,
   folds and partitions along the level sets of smooth noise. It is a formula over a space in
   millimetres, not an array (:class:`Anatomy`).
2. *Two subjects.* Each maps its voxels to the anatomy by an affine and the flow of a smooth random
   velocity (:class:`Subject`). The formula is evaluated at the mapped points. Thus nothing is
   resampled, and the map between the subjects, ``Phi = moving^-1 o fixed``, is known both ways.
3. *Two images.* Random mean and texture of every tissue, independent for the two images unless
   ``same_contrast`` is drawn; point spread, bias field, thick slices, noise, window and exponent; a
   field of view that may end inside the body.
4. *Labels.* ``data.labels`` structures, drawn from those that both subjects show well.

Everything about pair number ``n`` comes from a generator seeded with (seed, stream, n). Axes are z,
y, x; z points to the head, y to the back and x to the left (canonical LPS). The images are already
on the network grid and aligned except for the residual that an affine initial transform leaves.
"""

from .anatomy import Anatomy
from .bodies import BODIES
from .noise import gaussian_process
from .source import LEAST_LABELS, SyntheticPair, SyntheticSource
from .subject import Subject

__all__ = [
    "Anatomy",
    "BODIES",
    "LEAST_LABELS",
    "Subject",
    "SyntheticPair",
    "SyntheticSource",
    "gaussian_process",
]
