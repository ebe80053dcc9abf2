"""From 60 labelled pairs to a registered volume.

    python tutorial.py --data DIR --out OUT

DIR has ``images/``, ``labels/`` (same file names) and ``split.json`` with pair lists; the
hippocampus set of the Medical Segmentation Decathlon in that layout will do. With the default
lengths this takes about half an hour on one idle CPU core. Repeat the command after an
interruption: finished stages are kept, an unfinished one goes on.

The cells below are the three commands of ``morphseek train`` written out in Python, and the use of
what they make. OUT has then the network (``tutorial.onnx``), a registered test pair
(``registered/``), its picture (``pair.png``) and the curves (``curves.png``).
"""

# %% Arguments
import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import SimpleITK as sitk

import morphseek
from morphseek.training import config
from morphseek.training.cli import changes_of
from morphseek.training.evaluate import evaluate_pairs
from morphseek.training.export import export_bundle
from morphseek.training.pairs import PairSource, read_pairs
from morphseek.training.run import Trainer, load_backbone
from morphseek.training.run.log import histories

parser = argparse.ArgumentParser(description="From labelled pairs to a registered volume.")
parser.add_argument(
    "--data", type=Path, required=True, help="folder with images/, labels/ and split.json"
)
parser.add_argument(
    "--out",
    type=Path,
    default=Path("tutorial-run"),
    help="folder for checkpoints, plots and the bundle",
)
parser.add_argument("--pairs", type=int, default=60, help="labelled pairs to learn from")
parser.add_argument("--warmup-iterations", type=int, default=600)
parser.add_argument("--finetune-iterations", type=int, default=900)
parser.add_argument(
    "--set",
    action="append",
    default=[],
    metavar="KEY=VALUE",
    help="change a configuration key (JSON value)",
)
args = parser.parse_args()


changes = changes_of(args.set)
args.out.mkdir(parents=True, exist_ok=True)


def train(trainer):
    trainer.run()
    if not trainer.is_done:
        raise SystemExit("stopped; repeat the command to go on")


# %% 1. Warm up without labels The network learns to make images alike. z = mu: nothing is sampled
# yet, and the latent space takes its shape.
warm = config.load("warmup").replace(
    **(
        {"data.path": str(args.data), "run.iterations": args.warmup_iterations, "run.val_pairs": 8}
        | changes
    )
)
train(Trainer(warm, args.out / "warmup"))

# %% 2. Fine-tune with labels Multi-step (T = 3), soft Dice beside the warm-up loss, a velocity
# field and a penalty on folds. `pairs = "grpo"` is the labelled list of split.json; `limit` takes
# 60 of them, the same ones every time.
tune = config.load("best").replace(
    **(
        {
            "data.path": str(args.data),
            "data.pairs": "grpo",
            "data.limit": args.pairs,
            "model.backbone": "compact",
            "model.options": {},
            "run.pretrain": 0,
            "loss.segmentation": 0.0,
            "loss.phases": [],
            "optim.lr": 5e-4,
            "run.iterations": args.finetune_iterations,
            "run.steps_schedule": [],
            "run.val_pairs": 8,
        }
        | changes
    )
)
train(Trainer(tune, args.out / "finetune", init=args.out / "warmup" / "best.pt"))

# %% 3. Measure on people that training never saw
model, used, state = load_backbone(args.out / "finetune" / "best.pt")
source = PairSource.configured(used.data, args.data)
rows = evaluate_pairs(
    model, source, read_pairs(args.data, "test"), used.data.spacing, used.data.min_size, steps=3
)
dice = np.array([[100 * s["dice"] for s in r["steps"]] for r in rows])
njd = np.array([[s["njd"] for s in r["steps"]] for r in rows])
for t in range(4):
    print(
        f"T = {t}: Dice {dice[:, t].mean():.2f} +- {dice[:, t].std():.2f} %, NJD"
        f" {njd[:, t].mean():.4f} %"
    )

# %% 4. Plots
fig, axes = plt.subplots(1, 3, figsize=(13, 3.6), constrained_layout=True)
for name, run, keys in (
    ("warm-up", "warmup", ("similarity",)),
    ("fine-tuning", "finetune", ("soft_dice",)),
):
    h = histories(args.out / run, keys)
    window = max(len(h["iteration"]) // 20, 1)
    smooth = np.convolve(h[keys[0]], np.ones(window) / window, mode="valid")
    axis = axes[0 if run == "warmup" else 1]
    axis.plot(h["iteration"][window - 1 :], smooth)
    axis.set(title=f"{name}: {keys[0].replace('_', ' ')}", xlabel="iterations")
axes[2].boxplot(list(dice.T), tick_labels=["start", "T = 1", "T = 2", "T = 3"])
axes[2].set(title=f"{len(rows)} test pairs", ylabel="Dice, %")
fig.savefig(args.out / "curves.png", dpi=110)

# %% 5. Export
# One file, weights and manifest inside. Say what it is for, and whom to credit: --set
# bundle.modality=mr, bundle.licence=..., bundle.credit=...
used.bundle.name = used.bundle.name or "tutorial"
bundle = args.out / "tutorial.onnx"
manifest = export_bundle(
    model, used, bundle, {"test_dice": round(float(dice[:, 3].mean()) / 100, 4)}
)
print(f"{bundle}: {manifest['parameters']} parameters, sha256 {manifest['sha256'][:16]}...")

# %% 6. Register a test pair with it As anybody does who is given the file, without PyTorch;
# `morphseek register FIXED MOVING --model tutorial.onnx --out DIR` is the same.
names = read_pairs(args.data, "test")[0]
images, labels = (
    [next((args.data / folder).glob(f"{name}.*")) for name in names]
    for folder in ("images", "labels")
)
result = morphseek.register(*images, model=str(bundle))
result.save(args.out / "registered")
print(result)

fixed, fixed_labels = (sitk.ReadImage(str(p[0])) for p in (images, labels))
start = result.transform.stage("initial").to_sitk()
aligned, aligned_labels = (
    sitk.GetArrayFromImage(sitk.Resample(sitk.ReadImage(str(p[1])), fixed, start, how)).astype(
        float
    )
    for p, how in ((images, sitk.sitkLinear), (labels, sitk.sitkNearestNeighbor))
)
warped_labels = sitk.GetArrayFromImage(result.apply(str(labels[1]), interpolation="nearest"))
fixed, fixed_labels = (sitk.GetArrayFromImage(x).astype(float) for x in (fixed, fixed_labels))


def overlap(found):
    pairs = [(found == k, fixed_labels == k) for k in range(1, used.data.labels + 1)]
    return 100 * np.mean([2 * (a & b).sum() / (a.sum() + b.sum()) for a, b in pairs])


print(
    f"Dice {overlap(aligned_labels):.2f} % after the affine step, {overlap(warped_labels):.2f} %"
    " registered"
)

bright = np.percentile(fixed, 99.5)
fig, axes = plt.subplots(3, 4, figsize=(10, 8), constrained_layout=True)
for axis, row in enumerate(axes):
    shown = (
        (fixed, None, "fixed"),
        (aligned, aligned_labels, "moving, aligned"),
        (result.warped, warped_labels, "registered"),
    )
    for place, (image, marks, title) in zip(row, shown, strict=False):
        place.imshow(
            image.take(image.shape[axis] // 2, axis),
            cmap="gray",
            vmin=0,
            vmax=bright,
            origin="lower",
        )
        # The fixed labels on every image: alignment is their fit.
        for found, colour in ((fixed_labels, "c"), (marks, "orange")):
            if found is not None and (cut := found.take(found.shape[axis] // 2, axis)).any():
                place.contour(cut, levels=[0.5, 1.5], colors=[colour] * 2, linewidths=0.8)
        place.set_title(title)
    difference = np.abs(fixed - result.warped)
    row[3].imshow(
        difference.take(difference.shape[axis] // 2, axis),
        cmap="magma",
        vmin=0,
        vmax=bright / 2,
        origin="lower",
    )
    row[3].set_title("|fixed - registered|")
for place in axes.ravel():
    place.set_axis_off()
fig.savefig(args.out / "pair.png", dpi=110)
