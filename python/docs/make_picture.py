"""Makes docs/img/demo.png, the picture in the README: the pair of `morphseek demo`, before and
after (extra: morphseek[plot]).
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import morphseek
from morphseek.report.axes import ACROSS_DOWN
from morphseek.report.views import Scene
from morphseek.scoring import mean_dice, score_labels

BACKGROUND, TEXT, FIXED, MOVING = "#14181b", "#c9d1d6", "#4fb3d9", "#f0a94a"

pair = morphseek.phantom.make_pair()
result = morphseek.register(pair.fixed, pair.moving, progress=True)
scores = score_labels(result, pair.fixed_labels, pair.moving_labels)
print(f"Dice {mean_dice(scores, 'before'):.3f} -> {mean_dice(scores):.3f}, {result}")

scene = Scene(result, pair.fixed, pair.moving, pair.fixed_labels, pair.moving_labels)
at, sizes = scene.middle(), scene.sizes_mm()
columns = [
    ("fixed (MR-like)", "fixed", None),
    ("moving (CT-like)", "before", None),
    ("warped", "after", None),
    (f"labels before: Dice {mean_dice(scores, 'before'):.2f}", "fixed", "labels-before"),
    (f"labels after: Dice {mean_dice(scores):.2f}", "fixed", "labels-after"),
]
figure = Figure(figsize=(13, 4.9), facecolor=BACKGROUND, dpi=80)
grid = figure.add_gridspec(
    2,
    5,
    left=0.004,
    right=0.996,
    top=0.935,
    bottom=0.008,
    wspace=0.02,
    hspace=0.02,
    height_ratios=[sizes[plane][0] for plane in (1, 0)],
)
for row, plane in enumerate((1, 0)):
    spacing = [scene.spacing[axis] for axis in ACROSS_DOWN[plane]]
    for column, (title, image, labels) in enumerate(columns):
        axes = figure.add_subplot(grid[row, column])
        low, high = scene.windows["fixed" if image == "fixed" else "moving"]
        shown = scene.slices(image, at)[plane]
        extent = (0, sizes[plane][1], sizes[plane][0], 0)
        brightest = high if labels is None else low + 1.4 * (high - low)
        axes.imshow(
            shown, cmap="gray", vmin=low, vmax=brightest, extent=extent, interpolation="bilinear"
        )
        for name, color in () if labels is None else (("labels-fixed", FIXED), (labels, MOVING)):
            outlined = scene.slices(name, at)[plane]
            across, down = ((np.arange(n) + 0.5) * s for n, s in zip(outlined.shape[::-1], spacing))
            for label in morphseek.phantom.LABELS:
                if 0 < np.count_nonzero(outlined == label) < outlined.size:
                    axes.contour(across, down, outlined == label, [0.5], colors=color, linewidths=1)
        axes.set_axis_off()
        if row == 0:
            axes.set_title(title, color=TEXT, fontsize=11, pad=4)
path = Path(__file__).parent / "img" / "demo.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, facecolor=BACKGROUND)
print(path, path.stat().st_size, "bytes")
