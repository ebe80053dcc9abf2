"""Makes docs/img/demo.png, the picture in the README: the pair of `morphseek demo`, before and
after.
"""

from pathlib import Path

from matplotlib.figure import Figure

import morphseek
from morphseek import report
from morphseek.scoring import mean_dice, score_labels
from morphseek.transforms import resample_identity

pair = morphseek.phantoms.make_pair()
result = morphseek.register(pair.fixed, pair.moving, progress=True)
scores = score_labels(result, pair.fixed_labels, pair.moving_labels)
print(f"Dice {mean_dice(scores, 'before'):.3f} -> {mean_dice(scores):.3f}, {result}")

views = report._Views(result.grid, pair.fixed, pair.fixed_labels)
fixed, before, after = (
    report._scaled(views.take(a))
    for a in (
        pair.fixed.array,
        resample_identity(pair.moving, result.grid, "linear", -1000.0),
        result.warped,
    )
)
labels = [
    views.take(pair.fixed_labels.array),
    views.take(resample_identity(pair.moving_labels, result.grid, "nearest", 0.0)),
]
labels.append(views.take(result.apply(pair.moving_labels, interpolation="nearest").array))
columns = [
    ("fixed (MR-like)", fixed, None),
    ("moving (CT-like)", before, None),
    ("warped", after, None),
    (f"labels before: Dice {mean_dice(scores, 'before'):.2f}", fixed, labels[1]),
    (f"labels after: Dice {mean_dice(scores):.2f}", fixed, labels[2]),
]
figure = Figure(figsize=(13, 4.9), facecolor=report._BACKGROUND, dpi=80)
grid = figure.add_gridspec(
    2,
    5,
    left=0.004,
    right=0.996,
    top=0.935,
    bottom=0.008,
    wspace=0.02,
    hspace=0.02,
    height_ratios=[views.extent(p)[2] for p in (1, 0)],
)
for row, plane in enumerate((1, 0)):
    for column, (title, image, outlines) in enumerate(columns):
        axes = figure.add_subplot(grid[row, column])
        report._show(axes, views, plane, image[plane], vmin=0, vmax=1 if outlines is None else 1.4)
        for slices, color in (
            () if outlines is None else ((labels[0], report._FIXED), (outlines, report._MOVING))
        ):
            for label in morphseek.phantoms.LABELS:
                report._contour(axes, views, plane, slices[plane] == label, 0.5, color)
        left, right, bottom, top = views.extent(plane)
        axes.set(xlim=(left, right), ylim=(bottom, top))
        axes.set_axis_off()
        if row == 0:
            axes.set_title(title, color=report._TEXT, fontsize=11, pad=4)
path = Path(__file__).parent / "img" / "demo.png"
path.parent.mkdir(exist_ok=True)
figure.savefig(path, facecolor=report._BACKGROUND)
print(path, path.stat().st_size, "bytes")
