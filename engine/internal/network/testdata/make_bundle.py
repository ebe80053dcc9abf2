"""Make the test bundles and golden values of engine/internal/network: python make_bundle.py (needs
morphseek[training] and onnxruntime).

tiny.onnx      a sound bundle: a step graph of a few hundred weights, exported from torch
loop.onnx      the same in a loop: a run may take several steps
offset.onnx    that in a loop, with images displaced differently from step to step
external.onnx  the first with its weights in another file
golden.bin     float32: fixed, moving, then per step epsilon, u, reward, mu, log_sigma of three
chained steps, computed by
               onnxruntime in Python and checked here against torch
register.bin   float32: fixed, moving, u, warped: the whole of a registration from one position, in
torch, numpy and scipy;
               then u by the bundle with offsets
"""

import hashlib
import io
import json
import pathlib

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from scipy.ndimage import map_coordinates

from morphseek.training.export.onnx_loop import loop_steps
from morphseek.training.spatial import njd_fraction, translate

import onnxruntime  # isort: skip; after morphseek, which switches its telemetry off

HERE = pathlib.Path(__file__).parent
CHANNELS, STRIDE, J, STEPS = 2, 4, 3, 3
OFFSETS = ((0, 0, 0), (1, 2, -1))  # z, y, x
SIZE = (12, 8, 16)  # z, y, x


class Step(torch.nn.Module):
    """(fixed, moving, u_prev, epsilon, tau) -> (u, warped, reward, mu, log_sigma), weights stored
    in half precision.
    """

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(7)
        self.encode = torch.nn.Parameter(
            (torch.randn(2 * CHANNELS, 2, 4, 4, 4, generator=g) * 0.3).half(), requires_grad=False
        )
        self.decode = torch.nn.Parameter(
            (torch.randn(3, CHANNELS, 3, 3, 3, generator=g) * 0.3).half(), requires_grad=False
        )

    @staticmethod
    def sample(image, u):
        """image at x + u(x); u in voxels, planes along z, y, x; beyond the border the border."""
        sizes = image.shape[2:]
        axes = [torch.arange(n, dtype=torch.float32) for n in sizes]
        index = torch.stack(torch.meshgrid(*axes, indexing="ij"))[None] + u
        grid = torch.stack([index[:, a] * 2 / (sizes[a] - 1) - 1 for a in (2, 1, 0)], -1)
        return F.grid_sample(
            image, grid, mode="bilinear", padding_mode="border", align_corners=True
        )

    def forward(self, fixed, moving, u_prev, epsilon, tau, offset=None):
        j = epsilon.shape[0]
        seen = self.sample(moving, u_prev)
        images = torch.cat([fixed, seen], 1)
        if offset is not None:
            images = translate(images, offset)
        code = F.conv3d(images, self.encode.float(), stride=STRIDE)
        mu, log_sigma = torch.tanh(code[:, :CHANNELS]), torch.clamp(code[:, CHANNELS:], -10, 3)
        z = mu + tau * torch.exp(log_sigma) * epsilon
        z = F.interpolate(z, scale_factor=float(STRIDE), mode="trilinear", align_corners=False)
        phi = torch.tanh(F.conv3d(z, self.decode.float(), padding=1))
        if offset is not None:
            phi = translate(phi, [-n for n in offset])
        u = phi + self.sample(u_prev.expand(j, -1, -1, -1, -1), phi)
        warped = self.sample(moving.expand(j, -1, -1, -1, -1), u)
        reward = -((warped - fixed) ** 2).mean((1, 2, 3, 4))
        return u, warped, reward, mu, log_sigma


class StepWithNJD(Step):
    """The step with one more output, as a loop wants it."""

    def forward(self, fixed, moving, u_prev, epsilon, tau, offset=None):
        out = super().forward(fixed, moving, u_prev, epsilon, tau, offset)
        return *out, 100 * njd_fraction(out[0])


def field_bytes(data, wanted):
    """The raw payload of a length-delimited field of a protobuf message."""

    def varint(at):
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value, at

    at, found = 0, None
    while at < len(data):
        tag, at = varint(at)
        if tag & 7 == 0:
            _, at = varint(at)
            continue
        length, at = varint(at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
        if tag >> 3 == wanted:
            found = data[at : at + length]
        at += length
    return found


def bundle(model):
    """The model with its manifest, without the exporter's notes (they name source files of this
    machine).
    """
    del model.metadata_props[:], model.graph.metadata_props[:], model.graph.value_info[:]
    for node in model.graph.node:
        for inner in [n for a in node.attribute for n in a.g.node] + [node]:
            del inner.metadata_props[:]
            inner.doc_string = ""
    sha256 = hashlib.sha256(field_bytes(model.SerializeToString(), 7)).hexdigest()
    manifest = {
        "format": 1,
        "name": "tiny",
        "version": "1.0.0",
        "backbone": "test",
        "latent": {"channels": CHANNELS, "stride": STRIDE},
        "size_multiple": STRIDE,
        "min_size": [8, 8, 8],
        "spacing_mm": [None, None, None],
        "intensity": {"method": "percentile", "low": 1, "high": 99, "out": [0, 1], "background": 0},
        "modality": "any",
        "initial": "affine",
        "steps": STEPS,
        "parametrisation": "displacement",
        "training_data": [{"name": "none", "licence": "CC0-1.0", "credit": "random weights"}],
        "licence": "Apache-2.0",
        "credit": "MorphSeek",
        "metrics": {},
        "parameters": 584,
        "sha256": sha256,
    }
    model.metadata_props.add(key="morphseek_manifest", value=json.dumps(manifest))
    return model


def export(step, inputs):
    """The ONNX model of a step, for every size and number of trajectories."""
    d, h, w = (STRIDE * torch.export.Dim(n, min=2, max=64) for n in ("d", "h", "w"))
    volume, auto = {2: d, 3: h, 4: w}, torch.export.Dim.AUTO
    latents = {0: torch.export.Dim("j", min=1, max=64), 2: auto, 3: auto, 4: auto}
    names = ["fixed", "moving", "u_prev", "epsilon", "tau", "step_view"][: len(inputs)]
    outputs = ["u", "warped", "reward", "mu", "log_sigma", "njd"]
    return torch.onnx.export(
        step,
        inputs,
        dynamo=True,
        opset_version=20,
        input_names=names,
        output_names=outputs if isinstance(step, StepWithNJD) else outputs[:-1],
        dynamic_shapes=(volume, volume, volume, latents, None, None)[: len(inputs)],
    ).model_proto


def normalise(v):
    low, high = np.percentile(v, [1, 99])
    return np.clip((v - low) / (high - low), 0, 1).astype(np.float32)


def main():
    torch.manual_seed(0)
    step = Step().eval()
    z, y, x = torch.meshgrid(*[torch.linspace(-1, 1, n) for n in SIZE], indexing="ij")
    fixed = torch.exp(-4 * (x**2 + y**2 + z**2))[None, None]
    moving = torch.exp(-4 * ((x - 0.2) ** 2 + (y + 0.1) ** 2 + z**2))[None, None]
    latent = [CHANNELS] + [n // STRIDE for n in SIZE]
    epsilon = torch.randn(STEPS, J, *latent)
    epsilon[:, 0] = 0
    u, tau = torch.zeros(1, 3, *SIZE), torch.tensor([0.5])

    inputs = (fixed, moving, u, epsilon[0], tau)
    looped = export(StepWithNJD().eval(), inputs)
    loop_steps(looped)
    onnx.save(bundle(looped), HERE / "loop.onnx")
    offset = export(StepWithNJD().eval(), (*inputs, torch.tensor(OFFSETS[1])))
    loop_steps(offset, OFFSETS)
    onnx.save(bundle(offset), HERE / "offset.onnx")
    model = bundle(export(step, inputs))
    onnx.save(model, HERE / "tiny.onnx")
    onnx.save(
        model,
        HERE / "external.onnx",
        save_as_external_data=True,
        location="external.weights",
        size_threshold=0,
    )
    (HERE / "external.weights").unlink()

    session = onnxruntime.InferenceSession(
        (HERE / "tiny.onnx").read_bytes(), providers=["CPUExecutionProvider"]
    )
    out = io.BytesIO()
    write = lambda a: out.write(np.asarray(a, "<f4").tobytes())
    write(fixed), write(moving)
    for t in range(STEPS):
        feed = dict(fixed=fixed, moving=moving, u_prev=u, epsilon=epsilon[t], tau=tau)
        got = session.run(
            ["u", "reward", "mu", "log_sigma"], {k: v.numpy() for k, v in feed.items()}
        )
        with torch.no_grad():
            want = step(**feed)
        for a, b in zip(got, (want[0], want[2], want[3], want[4])):
            assert np.abs(a - b.numpy()).max() < 1e-5
        for a in (epsilon[t], *got):
            write(a)
        u = torch.from_numpy(got[0][[np.argmax(got[1])]])
        print("step", t, "rewards", got[1], "max |u|", np.abs(got[0]).max())
    (HERE / "golden.bin").write_bytes(out.getvalue())

    raw = [100 * fixed.numpy()[0, 0] - 20, 300 * moving.numpy()[0, 0] ** 2 + 5]
    inputs = [torch.from_numpy(normalise(v))[None, None] for v in raw]

    def registered(offsets):
        u = torch.zeros(1, 3, *SIZE)
        for t in range(STEPS):
            with torch.no_grad():
                u = step(
                    *inputs, u, torch.zeros(1, *latent), torch.zeros(1), offsets[t % len(offsets)]
                )[0]
        return u.numpy()[0]

    u = registered([None])
    warped = map_coordinates(
        raw[1].astype(np.float64), np.indices(SIZE) + u, order=1, mode="constant", cval=raw[1].min()
    )
    (HERE / "register.bin").write_bytes(
        b"".join(a.astype("<f4").tobytes() for a in (*raw, u, warped, registered(OFFSETS)))
    )


if __name__ == "__main__":
    main()
