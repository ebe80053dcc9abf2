"""The panel in napari's window: two layers, options, Register and Cancel, the verdict."""

from __future__ import annotations

from typing import Any

from ... import Progress, errors
from ..._features import missing
from ...info import schema
from .geometry import PLACE, LayerData, mm_per_unit
from .run import Outcome, RunInputs, run

try:
    from magicgui.widgets import CheckBox, ComboBox, Container, Label, ProgressBar, PushButton
    from napari import layers
    from napari.qt.threading import WorkerBase, WorkerBaseSignals
    from qtpy.QtCore import Signal
except ModuleNotFoundError as error:
    raise missing("napari", error) from None

OPTIONS = ("preset", "initial", "similarity", "smoothness", "symmetric")
"""The engine's options that the panel offers; the others are the Python call's."""
RESULT = "morphseek"
"""Where the registered layer's metadata has the :class:`morphseek.Registration`."""


class _Signals(WorkerBaseSignals):  # type: ignore[misc]
    reported = Signal(float, str)


class _Run(WorkerBase):  # type: ignore[misc]
    """A job in a thread. Its answer is what was found, or a sentence in place of a traceback."""

    def __init__(self, job: RunInputs):
        super().__init__(SignalsClass=_Signals)
        self._job = job
        self._last = ""

    def work(self) -> Outcome | str:
        try:
            return run(self._job, self._tell)
        except Exception as error:
            return sentence(error)

    def _tell(self, progress: Progress) -> bool:
        percent = f"{progress.stage} {progress.fraction:.0%}"
        if percent != self._last:  # the engine reports more often than one can see
            self._last = percent
            self.reported.emit(progress.fraction, progress.stage)
        return not self.abort_requested


def _in_python(option: dict[str, Any], word: str) -> Any:
    """Return a choice as :func:`morphseek.register` takes it: of a switch a bool."""
    is_switch = any(way.get("type") == "boolean" for way in option.get("anyOf", ()))
    return {"on": True, "off": False}.get(word, word) if is_switch else word


class RegisterWidget(Container):  # type: ignore[misc]
    """The panel: it offers the layers of ``napari_viewer``, and adds the results to them."""

    def __init__(self, napari_viewer: Any):
        self._viewer = napari_viewer
        self._run: _Run | None = None
        self._fixed_layer: Any = None
        self._moving_layer: Any = None
        self._told = False
        self.fixed = _choice("Fixed", self._images, "The image that stays where it is.")
        self.moving = _choice("Moving", self._images, "The image that is brought to the fixed one.")
        self.moving_points = _choice(
            "Moving points", self._points, "Points of the moving image, to carry over.", True
        )
        self.moving_labels = _choice(
            "Moving labels", self._labels, "Labels of the moving image, to carry over.", True
        )
        known = schema.options()["properties"]
        self._known = {name: known[name] for name in known if name in OPTIONS}
        self.engine_options = {
            name: ComboBox(
                label=option["title"],
                choices=option["anyOf"][0]["enum"] if "anyOf" in option else option["enum"],
                value=option["default"],
                tooltip=option["description"],
            )
            for name, option in self._known.items()
        }
        self.displacement = CheckBox(text="Displacement, mm", value=False)
        self.jacobian = CheckBox(text="Volume change (Jacobian)", value=False)
        self.vectors = CheckBox(text="Displacement as arrows", value=False)
        self.start = PushButton(text="Register")
        self.cancel = PushButton(text="Cancel", enabled=False)
        self.bar = ProgressBar(min=0, max=100, value=0, label="", visible=False)
        self.message = Label(value="")
        self.message.native.setWordWrap(True)
        super().__init__(
            widgets=[
                self.fixed,
                self.moving,
                self.moving_points,
                self.moving_labels,
                *self.engine_options.values(),
                self.displacement,
                self.jacobian,
                self.vectors,
                self.start,
                self.cancel,
                self.bar,
                self.message,
            ]
        )
        self.start.changed.connect(self.register)
        self.cancel.changed.connect(self.stop)
        self.native.destroyed.connect(self._forget)
        changes = napari_viewer.layers.events
        for event in (changes.inserted, changes.removed, changes.reordered, changes.renamed):
            event.connect(self._offer)
        self._offer()

    def _offer(self, event: Any = None) -> None:
        """Offer the layers that there are; two images are chosen in their order."""
        self.reset_choices()
        images = self._images()
        if len(images) > 1 and self.fixed.value is self.moving.value and not self._told:
            self.moving.value = images[1][1]

    def _images(self, widget: Any = None) -> list[tuple[str, Any]]:
        images = (each for each in self._viewer.layers if type(each) is layers.Image)
        return [(each.name, each) for each in images if RESULT not in each.metadata]

    def _points(self, widget: Any = None) -> list[tuple[str, Any]]:
        return [(e.name, e) for e in self._viewer.layers if isinstance(e, layers.Points)]

    def _labels(self, widget: Any = None) -> list[tuple[str, Any]]:
        return [(e.name, e) for e in self._viewer.layers if isinstance(e, layers.Labels)]

    def register(self) -> None:
        """Start a run with what is chosen, or say why not."""
        if self._run is not None:
            return
        try:
            job = self._job()
        except errors.MorphSeekError as error:
            self.message.value = sentence(error)
            return
        self._told = False
        self._fixed_layer, self._moving_layer = self.fixed.value, self.moving.value
        self._run = _Run(job)
        self._run.reported.connect(self._progress)
        self._run.returned.connect(self._returned)
        self._run.finished.connect(self._finished)
        self._running(True)
        self.message.value = "Registering…"
        self._run.start()

    def stop(self) -> None:
        """Cancel the run; nothing is added."""
        if self._run is not None:
            self._run.quit()
            self.message.value = "Cancelling…"

    def _job(self) -> RunInputs:
        fixed, moving = self.fixed.value, self.moving.value
        if fixed is None or moving is None:
            raise errors.InvalidArgumentError(
                "choose a fixed and a moving image: open two images, or File > Open Sample >"
                " MorphSeek"
            )
        if fixed is moving:
            raise errors.InvalidArgumentError(
                f"the fixed and the moving image are the same layer, {fixed.name!r}; choose two"
            )
        carried = (("points", self.moving_points.value), ("labels", self.moving_labels.value))
        points, labels = (
            None if layer is None else LayerData.of(layer, role) for role, layer in carried
        )
        options = {
            name: _in_python(option, self.engine_options[name].value)
            for name, option in self._known.items()
            # one that is given overrides the preset
            if self.engine_options[name].value != option["default"]
        }
        return RunInputs(
            LayerData.of(fixed, "fixed"), LayerData.of(moving, "moving"), points, labels, options,
            self.displacement.value, self.jacobian.value, self.vectors.value,
        )  # fmt: skip

    def _progress(self, fraction: float, stage: str) -> None:
        if self._run is not None and not self._run.abort_requested:
            self.bar.value = round(100 * fraction)
            self.message.value = f"Registering: {stage}"

    def _returned(self, answer: Outcome | str) -> None:
        if self._run is None:  # the window is closed
            return
        self._told = True
        if isinstance(answer, str):
            self.message.value = answer
            return
        for layer in result_layers(answer, self._fixed_layer, self._moving_layer):
            self._viewer.add_layer(layer)
        self.message.value = verdict_text(answer)
        self.message.tooltip = answer.result.explain()

    def _finished(self) -> None:
        if self._run is None:
            return
        self._run = self._fixed_layer = self._moving_layer = None
        self._running(False)
        if not self._told:
            self.message.value = "Cancelled. Nothing was added."

    def _forget(self) -> None:
        if self._run is not None:
            self._run.quit()
            self._run = None

    def _running(self, is_running: bool) -> None:
        self.start.enabled, self.cancel.enabled = not is_running, is_running
        self.bar.value = 0
        self.bar.visible = is_running


def _choice(label: str, choices: Any, tooltip: str, is_optional: bool = False) -> Any:
    return ComboBox(label=label, choices=choices, nullable=is_optional, tooltip=tooltip)


def result_layers(outcome: Outcome, fixed: Any, moving: Any) -> list[Any]:
    """Return the layers of a result: on the fixed layer, wherever that lies."""
    place = {name: getattr(fixed, name) for name in PLACE}
    image: dict[str, Any] = {"rgb": True}
    if not moving.rgb:
        image = {"colormap": moving.colormap, "contrast_limits": moving.contrast_limits}
    maps = (
        (
            outcome.jacobian,
            {"name": "volume change", "contrast_limits": (0, 2)},
            "twilight_shifted",
        ),
        (outcome.displacement, {"name": "displacement, mm"}, "viridis"),
    )
    new = [
        layers.Image(
            array, **how, colormap=colors, visible=False, metadata={RESULT: outcome.result}, **place
        )
        for array, how, colors in maps
        if array is not None
    ]
    new.append(
        layers.Image(
            outcome.warped,
            name=f"{moving.name} registered",
            blending=moving.blending,
            metadata={RESULT: outcome.result},
            **image,
            **place,
        )
    )
    if outcome.labels is not None:
        new.append(layers.Labels(outcome.labels, name="labels registered", **place))
    if outcome.vectors is not None:
        new.append(layers.Vectors(outcome.vectors, name="displacement", visible=False, **place))
    if outcome.points is not None:
        world = outcome.points / mm_per_unit(fixed)
        new.append(layers.Points(world, name="points registered", units=fixed.units))
    return new


def verdict_text(outcome: Outcome) -> str:
    """Return the verdict in words, its reasons and the warnings."""
    verdict = outcome.result.verdict
    if verdict is None:
        return "Registered."
    lines = [f"{verdict.headline}: {verdict.meaning}.", *verdict.reasons]
    other = [w for w in outcome.result.metrics["warnings"] if w not in verdict.reasons]
    return "\n".join([*lines, *other])


def sentence(error: Exception) -> str:
    """Return what to say of a failure."""
    text = str(errors._from_exception(error)) or type(error).__name__
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
