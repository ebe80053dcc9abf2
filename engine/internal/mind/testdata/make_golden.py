"""Writes golden.f32: a small image and its MIND-SSC by the authors' torch formulation
(Heinrich et al., MICCAI 2013). Beyond its border the image repeats; theirs repeats the differences.
The least variance is .01 of the mean, theirs .001. A part of the image has less.

Layout: 11*10*9 image voxels (z, y, x), then 12 channels of them. Run in this folder: python
make_golden.py
"""

import numpy as np
import torch
import torch.nn.functional as F

RADIUS, DILATION = 1, 2


def mind_ssc(img, radius, dilation):
    neighbours = torch.tensor([[0, 1, 1], [1, 1, 0], [1, 0, 1], [1, 1, 2], [2, 1, 1], [1, 2, 1]])
    squared = ((neighbours[:, None] - neighbours[None]) ** 2).sum(-1)
    row, column = torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij")
    pairs = (row > column) & (squared == 2)
    first = neighbours.unsqueeze(1).repeat(1, 6, 1)[pairs]
    second = neighbours.unsqueeze(0).repeat(6, 1, 1)[pairs]

    padded = F.pad(img, [dilation + radius] * 6, mode="replicate")

    def shift(points):
        kernel = torch.zeros(12, 1, 3, 3, 3, dtype=img.dtype)
        for channel, (z, y, x) in enumerate(points):
            kernel[channel, 0, z, y, x] = 1
        return F.conv3d(padded, kernel, dilation=dilation)

    difference = (shift(first) - shift(second)) ** 2
    ssd = F.avg_pool3d(difference, 2 * radius + 1, stride=1)
    mind = ssd - ssd.min(1, keepdim=True)[0]
    variance = mind.mean(1, keepdim=True)
    variance = variance.clamp(variance.mean() * 0.01, variance.mean() * 1000)
    mind = torch.exp(-mind / variance)
    return mind[:, [6, 8, 1, 11, 2, 10, 0, 7, 9, 4, 5, 3]]


rng = np.random.default_rng(7)
image = rng.normal(size=(11, 10, 9)).cumsum(0).cumsum(2).astype(np.float32)
image[:6, :6] *= 0.02
features = (
    mind_ssc(torch.from_numpy(image)[None, None].double(), RADIUS, DILATION)[0].float().numpy()
)
np.concatenate([image.ravel(), features.ravel()]).astype("<f4").tofile("golden.f32")
