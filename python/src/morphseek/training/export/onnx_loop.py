"""T refinement steps in one run: the step graph put into an ONNX ``Loop``.

A GPU should see one upload, T steps and one download. :func:`loop_steps` wraps a single-step graph
so that the number of steps is an input of the run. What does not change from step to step (weights,
features and window means of the fixed image) stays outside the loop and is computed once; between
steps the trajectory with the greatest reward is kept.

A run without ``steps`` takes one step as the single-step graph does, so one bundle serves callers
of either. If the network's view of the pair changes from step to step, a caller of single steps
gives the step's number as ``first``.

===============  =================  ========================================================
input or output  shape              meaning, where it differs from the single step's
===============  =================  ========================================================
``steps``        (1,) int64         T; 1 if it is left out
``first``        (1,) int64         steps taken before this run; 0 if it is left out; only if
                                    the network has views
``epsilon``      (T J, C, d, h, w)  noise; the J trajectories of the first step come first
``u``            (J, 3, D, H, W)    of the last step
``warped``       (J, 1, D, H, W)    of the last step
``reward``       (T J,)             of every step
``njd``          (T J,)             of every step
``mu``           (T, C, d, h, w)    of every step
``log_sigma``    (T, C, d, h, w)    of every step
===============  =================  ========================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

__all__ = ["loop_steps"]

#: What passes from step to step: the loop's inputs, with the outputs of the single step that they
#: come from.
CARRIED = {"state.u": "u", "state.warped": "warped", "state.reward": "reward"}
#: The outputs of every step, and the operator that makes the output of the loop's stack of them,
#: (T, J) or (T, 1, ...).
STACKED = {"reward": "Reshape", "njd": "Reshape", "mu": "Squeeze", "log_sigma": "Squeeze"}


def loop_steps(model: ModelProto, views: Sequence[Sequence[int]] = ()) -> None:
    """Turn ``model``, a step graph as described in :mod:`.export`, into the graph that takes T
    steps, with ``views`` in turn.

    Trajectories are compared as in the engine: of equal ones the first wins, NaN never wins.
    """
    step = GraphProto()
    step.CopyFrom(model.graph)
    value = {v.name: v for v in (*step.input, *step.output)}
    missing = {"u_prev", "epsilon", "warped", *STACKED, "u"} - value.keys()
    if missing:
        raise ValueError(f"no step graph: {', '.join(sorted(missing))} missing")

    inside, outside = _split(step.node, {"u_prev", "epsilon", "step_view"})
    # The outer graph has inputs and outputs with these names, too.
    names = {
        name: f"step.{name}"
        for name in ("u_prev", "epsilon", "step_view", *(v.name for v in step.output))
    }
    for node in inside:
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]

    def constant(name: str, array: np.ndarray) -> str:
        graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    graph = model.graph
    graph.Clear()
    graph.name = "steps"
    graph.input.extend([v for v in step.input if v.name != "step_view"])
    graph.input.append(helper.make_tensor_value_info("steps", TensorProto.INT64, [1]))
    next(v for v in graph.input if v.name == "epsilon").type.tensor_type.shape.dim[
        0
    ].dim_param = "draws"
    graph.output.extend(_like(v, v.name) for v in step.output)
    graph.initializer.extend(step.initializer)
    constant("steps", np.array([1]))  # an input with an initialiser may be left out
    minus_one = constant("loop.minus_one", np.array([-1]))
    worst = constant("loop.worst", np.array(-np.inf, np.float32))

    before = [
        helper.make_node("IsNaN", ["state.reward"], ["loop.unusable"]),
        helper.make_node("Where", ["loop.unusable", worst, "state.reward"], ["loop.usable"]),
        helper.make_node("ArgMax", ["loop.usable"], ["loop.best"], axis=0, keepdims=1),
        helper.make_node("Gather", ["state.u", "loop.best"], ["step.u_prev"], axis=0),
        helper.make_node("Gather", ["loop.epsilon", "loop.index"], ["step.epsilon"], axis=0),
        helper.make_node("Identity", ["loop.on"], ["loop.still_on"]),
    ]
    if views:
        graph.input.append(helper.make_tensor_value_info("first", TensorProto.INT64, [1]))
        constant("first", np.array([0]))
        table, period = (
            constant("loop.views", np.array(views)),
            constant("loop.period", np.array(len(views))),
        )
        scalar = constant("loop.scalar", np.zeros(0, np.int64))
        before += [
            helper.make_node("Reshape", ["first", scalar], ["loop.first_number"]),
            helper.make_node("Add", ["loop.index", "loop.first_number"], ["loop.number"]),
            helper.make_node("Mod", ["loop.number", period], ["loop.turn"]),
            helper.make_node("Gather", [table, "loop.turn"], ["step.step_view"], axis=0),
        ]
    # ONNX Runtime refuses a name that occurs twice among a subgraph's outputs.
    after = [helper.make_node("Identity", ["step.reward"], ["loop.reward"])]
    body = helper.make_graph(
        before + inside + after,
        "step",
        [
            helper.make_tensor_value_info("loop.index", TensorProto.INT64, []),
            helper.make_tensor_value_info("loop.on", TensorProto.BOOL, []),
            *(_like(value[then], now) for now, then in CARRIED.items()),
        ],
        [
            helper.make_tensor_value_info("loop.still_on", TensorProto.BOOL, []),
            *(_like(value[then], f"step.{then}") for then in CARRIED.values()),
            _like(value["reward"], "loop.reward"),
            *(_like(value[name], f"step.{name}") for name in STACKED if name != "reward"),
        ],
    )
    within = {name for node in inside for name in node.output}
    body.value_info.extend(v for v in step.value_info if v.name in within)
    graph.value_info.extend(v for v in step.value_info if v.name not in within)

    graph.node.extend(
        [
            *outside,
            helper.make_node("Shape", ["epsilon"], ["loop.latent"], start=1),
            helper.make_node(
                "Concat", ["steps", minus_one, "loop.latent"], ["loop.by_step"], axis=0
            ),
            helper.make_node("Reshape", ["epsilon", "loop.by_step"], ["loop.epsilon"]),
            helper.make_node(
                "Loop",
                # The first state is one trajectory with any reward. Its warped image is not read.
                [
                    "steps",
                    constant("loop.first", np.array(True)),
                    "u_prev",
                    "moving",
                    constant("loop.none", np.zeros(1, np.float32)),
                ],
                ["u", "warped", "loop.last", *(f"loop.{name}.steps" for name in STACKED)],
                body=body,
            ),
        ]
    )
    one = constant("loop.one", np.array([1]))
    for name, operator in STACKED.items():
        axis_or_shape = minus_one if operator == "Reshape" else one
        graph.node.append(helper.make_node(operator, [f"loop.{name}.steps", axis_or_shape], [name]))


def _split(
    nodes: Iterable[NodeProto], varying: set[str]
) -> tuple[list[NodeProto], list[NodeProto]]:
    """Return the nodes that depend on a ``varying`` name, and the others, both in order."""
    varying = set(varying)
    inside, outside = [], []
    for node in nodes:
        if varying.isdisjoint(node.input):
            outside.append(node)
        else:
            varying.update(node.output)
            inside.append(node)
    return inside, outside


def _like(value: ValueInfoProto, name: str) -> ValueInfoProto:
    """Return ``value`` under another name and with any length along the first axis, which counts
    trajectories or steps.
    """
    dims = [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, *dims[1:]])
