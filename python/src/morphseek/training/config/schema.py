"""The sections of a configuration: every section a dataclass, every key a field."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from .augmentation import Augmentation
from .errors import ConfigError
from .known import KnownMotion
from .rules import at_iteration, between, fill, ranged


@dataclass
class Data:
    """Volumes and pairs.

    Attributes
    ----------
    path : str
        Data folder; the command line's ``--data`` overrides it.
    pairs : str
        Pair list of the folder (a name in split.json or a Learn2Reg JSON, or a CSV file), or
        ``"subjects:SPLIT"``: every iteration draws an ordered pair from the subjects of that split.
        ``"synthetic"``: no folder; every iteration makes a pair by
        :mod:`morphseek.training.synthetic`, on a grid of ``min_size``, and validation has a fixed
        set of such pairs.
    limit : int
        Use only this many pairs of a list, drawn with ``limit_seed``; 0 uses all.
    val, test : str
        Pair lists for validation and test.
    labels : int
        Number of labels, background aside; 0 for unlabelled data.
    spacing : list of 3 float
        Spacing of the network grid, mm, array order (z, y, x).
    min_size : list of 3 int
        Least size of the network grid, voxels, array order.
    percentiles : list of 2 float
        Percentiles of the whole volume that become the intensities 0 and 1.
    initial : str
        Initial alignment of pairs, in training and in scoring: ``"centres"`` aligns the volumes'
        centres; other values are those of the engine's option of that name. ``"affine"`` is what
        a network meets in use; it takes one affine registration for each pair.
    """

    path: str = ""
    pairs: str = "warmup"
    limit: int = ranged(0, 0)
    limit_seed: int = ranged(0, 0)
    val: str = "val"
    test: str = "test"
    labels: int = ranged(2, 0, 255)
    spacing: list[float] = ranged([1.0, 1.0, 1.0], 1e-3, 1e3)
    min_size: list[int] = ranged([48, 64, 48], 1, 4096)
    percentiles: list[float] = ranged([0.5, 99.5], 0, 100)
    initial: Literal["centres", "none", "com", "rigid", "affine"] = "centres"


@dataclass
class Model:
    """The backbone and its heads: the parameters of :class:`..backbones.PolicyBackbone`.

    Attributes
    ----------
    backbone : str
        Name of one of :data:`..backbones.BACKBONES`, or of another package's entry point.
    parametrisation : {"velocity", "displacement"}
        What the decoder's output is: a velocity that is integrated, or the displacement itself.
    squarings : int
        Scaling-and-squaring steps of the integration.
    scale : float
        Bound of the latent mean: ``mu = scale * tanh(...)``.
    log_sigma_range : list of 2 float
        Clip of the logarithm of the latent's standard deviation.
    log_sigma_init : float
        Its value at the start.
    heads : bool
        Without heads the latent is the encoder's feature itself and its standard deviation is 1.
    offsets : list of [z, y, x]
        By how many voxels the images are shifted for the network, in each step in turn.
    mirrored : list of bool
        Whether the network sees the images mirrored left to right, in each step in turn.
    options : table
        Further options of the backbone's constructor.
    """

    backbone: str = "compact"
    parametrisation: Literal["velocity", "displacement"] = "velocity"
    squarings: int = ranged(7, 0, 20)
    scale: float = ranged(10.0, 1e-3)
    log_sigma_range: list[float] = field(default_factory=lambda: [-10.0, 3.0])
    log_sigma_init: float = 0.0
    heads: bool = True
    offsets: list[list[int]] = field(default_factory=list)
    mirrored: list[bool] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Loss:
    """Weights of the loss.

    Attributes
    ----------
    similarity : str
        Name of one of :data:`..losses.SIMILARITIES`.
    window : int
        Side of the cubic window of ``mse`` and ``ncc``, voxels.
    regularity : float
        lambda_reg, weight of the diffusion penalty.
    kl : float
        beta_KL, weight of the KL divergence.
    kl_target : float
        Target KL per latent dimension. Where positive, ``kl`` is multiplied by 1.5 after an
        iteration whose KL is above 1.5 times the target and divided by 1.5 below the target over
        1.5 (the usual adaptive rule). 0 keeps it fixed.
    warm, dice : float
        lambda_warm and lambda_Dice of the fine-tuning loss.
    fold, fold_margin : float
        Weight and margin of the hinge on the Jacobian determinant.
    volume : float
        Weight of the mean squared logarithm of the Jacobian determinant. It keeps a
        label-supervised network from stretching the inside of a structure and squeezing its rim,
        which raises Dice but is not anatomical.
    moving_share : float
        Share, 0 to 1, of soft Dice that is measured in the moving image's space: each fixed voxel
        counts by the volume that it covers there. Dice on the fixed grid alone does not see what
        lies between the mapped voxels, and the inverse transform gets worse. Not with
        ``policy.kind = "paper"``.
    segmentation : float
        Weight of the auxiliary segmentation (only for the backbones `compact` and `siamese`, and
        only without a policy). Its ``segmentation_classes`` are then ``data.labels``.
    truth : float
        Weight, during fine-tuning, of the distance in voxels to the true displacement, if that is
        known: for synthetic pairs, and for the known motions of section ``[known]``. The similarity
        of the images does not count for them.
    sharpness : float
        Steepness of a logistic that is applied to warped and fixed label probabilities before soft
        Dice; 0 applies none. Interpolated labels are blurred, and soft Dice of blurred labels
        hardly changes with errors below a voxel.
    mask_fov : bool
        Compare intensities only inside both fields of view.
    phases : list of tables
        Changes of these weights later in the run: each table has ``iteration`` and the keys
        that hold from that one on.
    """

    similarity: str = "mse"
    window: int = ranged(9, 1, 99)
    regularity: float = ranged(1.0, 0)
    kl: float = ranged(1e-4, 0)
    kl_target: float = ranged(0.0, 0)
    warm: float = ranged(0.8, 0)
    dice: float = ranged(0.2, 0)
    fold: float = ranged(0.0, 0)
    fold_margin: float = ranged(0.1, 0)
    volume: float = ranged(0.0, 0)
    moving_share: float = ranged(0.0, 0, 1)
    segmentation: float = ranged(0.0, 0)
    truth: float = ranged(0.0, 0)
    sharpness: float = ranged(0.0, 0)
    mask_fov: bool = True
    phases: list[dict[str, Any]] = field(default_factory=list)

    def at(self, iteration: int) -> Loss:
        """Return the weights that hold during an iteration, phases applied."""
        return at_iteration(self, iteration, "loss")


@dataclass
class Synthetic:
    """Made-up pairs (``data.pairs = "synthetic"``); see :mod:`morphseek.training.synthetic`.

    Attributes
    ----------
    bodies : list of str
        Kinds of anatomy, drawn with equal probability; one that is listed twice is drawn twice as
        often.
    coverage : list of 2 float
        Range of the grid's longest side relative to the body's width.
    deformation : float
        Upper end of the standard deviation of each subject's displacement, per component, in
        percent of the body's width. With 2.5, two torsos of 36 cm differ by about 2 cm.
    residual : float
        Scale of the affine misalignment that is left by the initial alignment: with 1, at most 5
        degrees, 6 % of size and 3 % of the width.
    same_contrast : float
        Probability that both images have the same contrast.
    texture : float
        Largest standard deviation of the texture in a tissue; intensities span about 1.
    bias : float
        Largest standard deviation of the logarithm of the bias field.
    blur : float
        Largest standard deviation of the point spread, voxels.
    slices : float
        Largest thickness of a slice, voxels; 40 % of the images have thick slices along one axis. 1
        is off.
    noise : float
        Largest standard deviation of the noise.
    crop : float
        Probability that an image's field of view ends inside the grid.
    workers : int
        Processes that make pairs in advance; 0 makes each pair when it is needed.
    val_pairs : int
        Number of validation pairs. They are never used in training and are as hard as the last
        phase makes them.
    phases : list of tables
        A curriculum: each table has ``iteration`` and the keys that hold from that one on.
    """

    bodies: list[str] = field(default_factory=lambda: ["head", "torso", "limb", "medley"])
    coverage: list[float] = field(default_factory=lambda: [0.7, 1.25])
    deformation: float = 2.5
    residual: float = 1.0
    same_contrast: float = 0.2
    texture: float = 0.15
    bias: float = 0.4
    blur: float = 1.0
    slices: float = 4.0
    noise: float = 0.1
    crop: float = 0.3
    workers: int = 0
    val_pairs: int = 16
    phases: list[dict[str, Any]] = field(default_factory=list)

    def at(self, iteration: int) -> Synthetic:
        """Return the settings that hold during an iteration, phases applied."""
        return at_iteration(self, iteration, "synthetic")


@dataclass
class Policy:
    """The latent policy during fine-tuning.

    Attributes
    ----------
    kind : {"none", "paper", "structured"}
        ``none``: z = mu, no sampling. ``paper``: GRPO as printed. ``structured``: low-rank smooth
        noise with local, centred advantages (see :mod:`morphseek.training.policy`).
    trajectories : int
        J, 2 or more to fine-tune: samples are compared with each other.
    reward : {"dice_njd", "hd95"}
        ``dice_njd``: ``w_dice * dDice + w_njd * NJD``. ``hd95``: minus the mean 95 % Hausdorff
        distance in mm (it has no gradient).
    w_dice, w_njd : float
    w_truth : float
        0 or less: what a voxel of distance to the truth adds to the reward of a pair whose motion
        is known (section ``known``); with 0 points do not count.
    weight : float
        Weight of the policy loss in kind ``paper`` (1 in the paper; 0 leaves only noise and
        best-of-J), and in ``structured`` if ``balance`` is ``fixed``.
    ldvn : {"sqrt", "one", "n"}
        s = sqrt(N), 1 or N.
    tau_init, tau_min, tau_drop : float
        Exploration temperature: starts at ``tau_init``, falls by ``tau_drop`` every ``tau_every``
        iterations.
    tau_every : int
    sequential : bool
        Decode and back-propagate the trajectories one by one, so that the peak memory does not
        depend on J.
    mean_candidate : bool
        The trajectory z = mu is also a candidate for the next state.
    rank : int
        ``structured``: number of latent channel directions the noise lives in.
    head : {"probe", "learned"}
        ``structured``: where the channel directions come from. They are the same for every pair and
        every cell, and no network predicts them. ``probe``: top eigenvectors of the soft-Dice
        gradient's channel covariance, computed again every ``refresh`` iterations over
        ``refresh_pairs`` pairs. ``learned``: starts with random directions and takes one step of
        Oja's rule at every step of the run (online principal components; nothing is back-propagated
        into them), on the exact gradient of the other terms at mu, with the Dice loss among them if
        it has a weight.
    refresh, refresh_pairs : int
    antithetic : bool
        ``structured``: samples come in pairs mu + eps, mu - eps; with an odd number the last one is
        single. Off, they are independent.
    advantage : {"local", "scalar"}
        ``structured``: with ``local``, every latent cell is credited with the reward of its
        neighbourhood, less the group's mean; with ``scalar``, with its trajectory's reward, less
        the group's mean, divided by the group's standard deviation. ``hd95`` has no local
        decomposition and is always scalar.
    smooth_sd : float
        ``structured``: standard deviation of the Gaussian that smooths the noise, latent cells.
    target_sd : float
        ``structured``: the noise is scaled so that the Dice of samples has this standard deviation,
        in points (percent).
    balance : {"norm", "fixed"}
        ``structured``: the policy gradient on mu is scaled to ``gradient_ratio``, or multiplied by
        ``weight``.
    gradient_ratio : float
        ``structured``: norm of the policy gradient on mu relative to that of the other terms, by
        moving averages; 0 leaves only the choice of the best trajectory.
    """

    kind: Literal["none", "paper", "structured"] = "none"
    trajectories: int = ranged(6, 1)
    reward: Literal["dice_njd", "hd95"] = "dice_njd"
    w_dice: float = ranged(10.0, 0)
    w_njd: float = ranged(-100.0, most=0)
    w_truth: float = ranged(0.0, most=0)
    weight: float = ranged(1.0, 0)
    ldvn: Literal["sqrt", "one", "n"] = "sqrt"
    tau_init: float = ranged(10.0, 0)
    tau_min: float = ranged(2.0, 0)
    tau_drop: float = ranged(1.0, 0)
    tau_every: int = ranged(1000, 1)
    sequential: bool = True
    mean_candidate: bool = False
    rank: int = ranged(4, 1)
    head: Literal["probe", "learned"] = "probe"
    refresh: int = ranged(50, 1)
    refresh_pairs: int = ranged(4, 1)
    antithetic: bool = True
    advantage: Literal["local", "scalar"] = "local"
    smooth_sd: float = ranged(0.8, 0)
    target_sd: float = ranged(0.75, 0)
    balance: Literal["norm", "fixed"] = "norm"
    gradient_ratio: float = ranged(0.5, 0)

    def temperature(self, iteration: int) -> float:
        """Return tau during iteration number ``iteration`` (from 0)."""
        return max(self.tau_min, self.tau_init - self.tau_drop * (iteration // self.tau_every))


@dataclass
class Optim:
    """Adam and its schedule.

    Attributes
    ----------
    lr : float
    schedule : {"constant", "cosine"}
        ``cosine`` decays to ``lr * final`` at the last iteration.
    final : float
    warmup : int
        Iterations of linear increase at the start.
    accumulate : int
        Number of pairs in an iteration; their gradients are averaged before an optimiser step.
    together : bool
        These pairs go through the network as one batch, which takes about half the time on a CPU.
        The distance to the truth is then the mean over the voxels of all pairs. Only for synthetic
        pairs, which have one size, and without a policy.
    weight_decay : float
        Decoupled weight decay (AdamW).
    clip : float
        Largest norm of the gradient; 0 does not clip.
    ema : float
        Decay, per optimiser step, of the moving average of the weights. Validation and export use
        this average; 0 is off.
    """

    lr: float = ranged(1e-4, 0)
    schedule: Literal["constant", "cosine"] = "constant"
    final: float = ranged(0.01, 0, 1)
    warmup: int = ranged(0, 0)
    accumulate: int = ranged(1, 1)
    together: bool = False
    weight_decay: float = ranged(0.0, 0)
    clip: float = ranged(0.0, 0)
    ema: float = ranged(0.0, 0, 1)


@dataclass
class Run:
    """Length, schedule and place of a run.

    Attributes
    ----------
    stage : {"warmup", "finetune"}
        ``warmup`` has no labels in its loss; ``finetune`` has.
    pretrain : int
        Number of iterations at the start that train only the auxiliary segmentation of the two
        images (backbone `siamese`).
    pretrain_joint_every : int
        Every this many of those, one registers nevertheless, so that the decoder follows the
        features; 0: none.
    iterations : int
        An iteration is one pair (``optim.accumulate`` of them) taken through T steps, with an
        optimiser step after each; one epoch of the paper's fine-tuning is 100.
    steps : int
        T.
    steps_schedule : list of [iteration, T]
        From that iteration on use T steps instead; a curriculum.
    seed : int
    val_every : int
        Iterations between validations.
    val_steps : int
        T at validation.
    val_pairs : int
        Use only the first pairs of the validation list; 0 uses all.
    checkpoint_minutes : float
    keep_every : int
        Iterations between checkpoints that are kept, iteration-250.pt and so on, for
        ``morphseek train average``; 0 keeps none.
    amp : {"bf16", "none"}
        A CPU without instructions for bf16 always computes in float32.
    device : str
        ``auto``, ``cpu`` or ``cuda``.
    threads : int
        PyTorch threads; 0 leaves PyTorch's choice.
    picture_every : int
        Validations between slice pictures in TensorBoard; 0 writes none.
    """

    stage: Literal["warmup", "finetune"] = "warmup"
    pretrain: int = ranged(0, 0)
    pretrain_joint_every: int = ranged(0, 0)
    iterations: int = ranged(1000, 0)
    steps: int = ranged(1, 1, 99)
    steps_schedule: list[list[int]] = field(default_factory=list)
    seed: int = ranged(0, 0, 2**63 - 1)
    val_every: int = ranged(200, 1)
    val_steps: int = ranged(3, 1, 16)
    val_pairs: int = ranged(0, 0)
    checkpoint_minutes: float = ranged(5.0, 0)
    keep_every: int = ranged(0, 0)
    amp: Literal["bf16", "none"] = "bf16"
    device: str = "auto"
    threads: int = ranged(0, 0, 4096)
    picture_every: int = ranged(5, 0)


@dataclass
class Source:
    """A data set that the network was trained on."""

    name: str = ""
    licence: str = ""
    credit: str = ""


@dataclass
class Bundle:
    """The exported bundle's description: its name (by default that of its file), the modality that
    it is for, the initial alignment that it needs, its licence, its credit and its training data.
    """

    name: str = ""
    version: str = "0.1.0"
    modality: str = "any"
    initial: Literal["com", "affine", "rigid", "none"] = "affine"
    licence: str = ""
    credit: str = ""
    training_data: list[Source] = field(default_factory=list)


@dataclass
class Config:
    """A whole run."""

    data: Data = field(default_factory=Data)
    synthetic: Synthetic = field(default_factory=Synthetic)
    model: Model = field(default_factory=Model)
    loss: Loss = field(default_factory=Loss)
    policy: Policy = field(default_factory=Policy)
    optim: Optim = field(default_factory=Optim)
    augment: Augmentation = field(default_factory=Augmentation)
    known: KnownMotion = field(default_factory=KnownMotion)
    run: Run = field(default_factory=Run)
    bundle: Bundle = field(default_factory=Bundle)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Config:
        """Make a configuration. An unknown section or key, or a value of the wrong type or out of
        range, raises :class:`ConfigError`.
        """
        config = fill(cls, values, "")
        config.check()
        return config

    def check(self) -> None:
        """Raise ConfigError for ranges, lengths, names and phases that types cannot express."""
        from ..losses.similarity import SIMILARITIES  # PyTorch's import takes seconds

        for section in dataclasses.fields(self):
            values = getattr(self, section.name)
            for key in dataclasses.fields(values):
                if "range" not in key.metadata:
                    continue
                least, most = key.metadata["range"]
                value = getattr(values, key.name)
                for number in value if isinstance(value, list) else [value]:
                    if not least <= number <= most:
                        raise ConfigError(
                            f"'{section.name}.{key.name}' must be {between(least, most)},"
                            f" not {number:g}"
                        )
        for name, count in (("spacing", 3), ("min_size", 3), ("percentiles", 2)):
            if len(getattr(self.data, name)) != count:
                raise ConfigError(
                    f"'data.{name}' must have {count} numbers, not {len(getattr(self.data, name))}"
                )
        for name in ("coarse", "fine"):
            values = getattr(self.known, name)
            if len(values) != 2 or values[1] <= 0:
                raise ConfigError(
                    f"'known.{name}' must be two numbers, mm, the second above 0, not {values}"
                )
        if self.data.percentiles[0] >= self.data.percentiles[1]:
            raise ConfigError(f"'data.percentiles' must rise, not {self.data.percentiles}")
        if self.loss.similarity not in SIMILARITIES:
            raise ConfigError(
                f"'loss.similarity' must be one of {', '.join(map(repr, SIMILARITIES))}, not"
                f" {self.loss.similarity!r}"
            )
        if self.loss.window % 2 == 0:
            raise ConfigError(f"'loss.window' must be odd, not {self.loss.window}")
        sigma = self.model.log_sigma_range
        if len(sigma) != 2 or not sigma[0] < sigma[1]:
            raise ConfigError(f"'model.log_sigma_range' must be two rising numbers, not {sigma}")
        p = self.policy
        if (
            self.run.stage == "finetune"
            and p.kind == "paper"
            and not p.temperature(max(self.run.iterations - 1, 0)) > 0
        ):
            raise ConfigError(
                "'policy.tau_min' must be above 0 where the temperature falls to it, not"
                f" {p.tau_min:g}: without noise there is no likelihood"
            )
        if any(len(entry) != 2 or entry[1] < 1 for entry in self.run.steps_schedule):
            raise ConfigError(
                "'run.steps_schedule' must be a list of [iteration, steps], not"
                f" {self.run.steps_schedule}"
            )
        for name in ("loss", "synthetic"):
            section = getattr(self, name)
            for phase in section.phases:
                if not isinstance(phase.get("iteration"), int):
                    raise ConfigError(
                        f"every table of '{name}.phases' needs 'iteration', a whole number:"
                        " the iteration at which it begins"
                    )
                if name == "loss" and (fixed := {"kl", "kl_target"} & phase.keys()):
                    raise ConfigError(
                        f"'loss.phases.{min(fixed)}' holds for the whole run; set it in [loss]"
                    )
                later = section.at(phase["iteration"])
                if name == "loss":
                    dataclasses.replace(self, loss=dataclasses.replace(later, phases=[])).check()
        if self.loss.moving_share and self.run.stage == "finetune" and self.policy.kind == "paper":
            raise ConfigError(
                "'loss.moving_share' cannot be combined with 'policy.kind' = 'paper'; set it to 0"
            )

    def replace(self, **dotted: Any) -> Config:
        """Return a copy with other values, e.g. ``config.replace(**{"run.iterations": 10})``."""
        values = self.to_dict()
        for key, value in dotted.items():
            section, dot, name = key.partition(".")
            if not dot:
                raise ConfigError(
                    f"{key!r} names no key: write SECTION.KEY, such as run.iterations"
                )
            if key.startswith("model.options."):
                values["model"]["options"][key.removeprefix("model.options.")] = value
                continue
            if section not in values or name not in values[section]:
                raise ConfigError(f"unknown key {key!r}")
            values[section][name] = value
        return Config.from_dict(values)
