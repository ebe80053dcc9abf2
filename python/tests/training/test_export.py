"""Bundles: ONNX Runtime compared with PyTorch, dynamic sizes, manifest and hash."""

import copy
import hashlib
import json

import numpy as np
import onnx
import onnxruntime
import pytest
import SimpleITK as sitk
import torch

import morphseek
from helpers import refused
from morphseek import errors
from morphseek.training import export
from morphseek.training.backbones import build_backbone
from morphseek.training.config import load
from morphseek.training.evaluate import field_on_fixed_grid, register_sample
from morphseek.training.pairs import make_grid, make_sample, read_case
from training_helpers import as_trained, feed_of, random_field, unlabelled

SMALL = {
    "voxelmorph-l": {"widths": [4, 4, 8, 8, 8]},
    "transmorph": dict(
        embed=12, depths=[1, 2, 1, 1], attention_heads=[2, 2, 2, 2], window=[2, 3, 2]
    ),
    "nice-trans": {"widths": [4, 4, 8, 8, 8], "window": [2, 3, 2]},
}
OUTPUTS = ["u", "warped", "reward", "mu", "log_sigma", "njd"]


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def traced():
    """A stand-in for the trace, which takes many seconds: of the network of `bundle`, made once."""
    real, models = export.bundle.trace, []

    def trace(*arguments):
        if not models:
            models.append(real(*arguments))
        return copy.deepcopy(models[0])

    return trace


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, traced):
    """A small network with weights that float16 holds exactly, so that storing them changes
    nothing.
    """
    options = dict(widths=[4, 4, 8], latent_channels=8, decoder=[8, 8], segmentation_classes=2)
    changes = {"model.backbone": "compact", "model.options": options}
    config = load("best").replace(**changes, **{"data.min_size": [24, 32, 24]})
    torch.manual_seed(0)
    backbone = build_backbone(config.model).eval()
    with torch.no_grad():
        backbone.flow.weight.normal_(std=0.03)  # moves some voxels in three steps
    as_trained(backbone)
    path = tmp_path_factory.mktemp("bundle") / "tiny.onnx"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export.bundle, "trace", traced)
        manifest = export.export_bundle(backbone, config, path, {"test_dice": 0.5})
    return path, manifest, backbone, config


def images(size, seed):
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(seed)
    found = []
    for _ in range(2):
        a = np.clip(gaussian_filter(rng.standard_normal(size), 2) * 4 + 0.4, 0, 1)
        a[:3] = 0  # outside the field of view
        found.append(torch.from_numpy(a.astype(np.float32))[None, None])
    return found


@pytest.mark.parametrize(
    "size, j, tau", [((24, 32, 24), 1, 0.0), ((40, 24, 32), 3, 0.7), ((32, 32, 48), 2, 0.3)]
)
def test_ort_follows_torch_over_three_steps(bundle, size, j, tau):
    path, _, backbone, _ = bundle
    run = session(path)
    graph = export.StepGraph(backbone)
    fixed, moving = images(size, 1)
    u_torch, u_ort = torch.zeros(1, 3, *size), np.zeros((1, 3, *size), np.float32)
    noise = torch.randn(
        3, j, *backbone.latent_shape(size), generator=torch.Generator().manual_seed(2)
    )
    each = []
    for eps in noise:
        with torch.no_grad():
            truth = graph(fixed, moving, u_torch, eps, torch.tensor([tau]))
        ours = run.run(None, feed_of(fixed, moving, u_ort, eps, tau))
        best = int(truth[2].argmax())
        u_torch, u_ort = truth[0][best : best + 1], ours[0][best : best + 1]
        each.append(ours)
    # All steps in one run: fields and images of the last step, values of every step.
    zero = np.zeros_like(u_ort)
    feed = feed_of(fixed, moving, zero, noise.flatten(0, 1), tau, steps=[3])
    whole = run.run(None, feed)
    for name, at_once, one_by_one in zip(OUTPUTS, whole, zip(*each, strict=True), strict=True):
        expected = one_by_one[-1] if name in ("u", "warped") else np.concatenate(one_by_one)
        np.testing.assert_allclose(at_once, expected, atol=1e-5, rtol=1e-5, err_msg=name)
    for name, a, b in zip(OUTPUTS, truth, ours, strict=True):
        assert a.shape == b.shape, name
        assert np.isfinite(b).all()
        # The required bound: 1e-4 voxel on the field after three chained steps.
        most = 1e-2 if name in ("reward", "njd") else 1e-4
        np.testing.assert_allclose(b, a.numpy(), atol=most, rtol=1e-4, err_msg=name)
    assert np.abs(ours[0]).max() > 0.2, "the field must move"
    if j > 1:
        assert np.abs(ours[0][0] - ours[0][1]).max() > 1e-3, "trajectories must differ"


@pytest.mark.thorough
def test_each_step_has_its_view(bundle, tmp_path):
    """Numbered single steps, and all steps in one run, agree with the loop in PyTorch."""
    _, _, backbone, config = bundle
    config = config.replace(
        **{"model.offsets": [[0, 0, 0], [1, 3, 2]], "model.mirrored": [False, False, True]}
    )
    twin = build_backbone(config.model)
    twin.load_state_dict(backbone.state_dict())
    export.export_bundle(twin, config, tmp_path / "views.onnx")
    run = session(tmp_path / "views.onnx")
    assert [i.name for i in run.get_inputs()] == ["fixed", "moving", "u_prev", "epsilon", "tau"]
    assert [i.name for i in run.get_overridable_initializers()] == ["steps", "first"]
    size = (24, 40, 32)
    pair = unlabelled(*images(size, 4))
    truth = register_sample(twin, pair, 3)
    assert (truth[2] - register_sample(backbone, pair, 3)[2]).abs().max() > 0.05
    zero = np.zeros((3, *backbone.latent_shape(size)), np.float32)
    still = np.zeros((1, 3, *size), np.float32)
    at_once = run.run(["u"], feed_of(pair.fixed, pair.moving, still, zero, steps=[3]))[0]
    feed = feed_of(pair.fixed, pair.moving, still, zero[:1])
    for t, expected in enumerate(truth):
        feed["u_prev"] = run.run(["u"], feed | ({"first": np.array([t])} if t else {}))[0]
        np.testing.assert_allclose(feed["u_prev"], expected, atol=1e-4)
    np.testing.assert_allclose(at_once, truth[2], atol=1e-4)


def test_the_engine_sees_what_training_saw(bundle, traced, tmp_path, monkeypatch):
    """With three different spacings, a CT scanner's padding and voxels that are no numbers, one
    step in the engine equals that in PyTorch.
    """
    from scipy.ndimage import gaussian_filter

    _, _, backbone, config = bundle
    changes = {"data.spacing": [3.0, 1.25, 2.0], "data.percentiles": [0.0, 100.0]}
    config = config.replace(**changes, **{"data.min_size": [16, 32, 24]})
    path = tmp_path / "uneven.onnx"
    monkeypatch.setattr(export.bundle, "trace", traced)
    export.export_bundle(backbone, config, path)
    files = []
    for i in range(2):
        noise = np.random.default_rng(i).standard_normal((15, 38, 43))
        array = gaussian_filter(noise, 2) * 3000 - 200
        array[:, :3] = -3024
        array[4, 5, 6] = np.nan
        image = sitk.GetImageFromArray(array.astype(np.float32))
        image.SetSpacing((1.1, 1.0, 3.2))
        files.append(tmp_path / f"{i}.nrrd")
        sitk.WriteImage(image, str(files[-1]))
    fixed, moving = (read_case(file, None, tuple(config.data.percentiles)) for file in files)
    # with the padding of -3024 it would be 0.8
    assert float(fixed.image.median()) == pytest.approx(0.5, abs=0.2)
    grid = make_grid(fixed, config.data.spacing, config.data.min_size, backbone.size_multiple)
    assert grid.size == (16, 32, 24)
    u = register_sample(backbone, make_sample(fixed, moving, grid, 0), 1)[0]
    result = morphseek.register(
        *files, model=str(path), initial="none", steps=1, refine=0, threads=1
    )
    assert u.abs().max() > 0.5
    np.testing.assert_allclose(
        result.displacement(), field_on_fixed_grid(u, grid, fixed)[0].numpy(), atol=1e-3
    )


def test_the_graph_warps_the_original_by_the_total_field(bundle):
    from scipy.ndimage import map_coordinates

    path, _, backbone, _ = bundle
    size = (24, 32, 24)
    fixed, moving = images(size, 3)
    u_prev = random_field(size, 2.0, seed=1)
    zero = np.zeros((1, *backbone.latent_shape(size)), np.float32)
    u, warped, *_ = session(path).run(None, feed_of(fixed, moving, u_prev, zero))
    grid = np.stack(np.meshgrid(*(np.arange(n, dtype=float) for n in size), indexing="ij"))
    truth = map_coordinates(moving[0, 0].numpy(), grid + u[0], order=1, mode="grid-constant")
    np.testing.assert_allclose(warped[0, 0], truth, atol=1e-4)


def test_the_file_is_what_the_engine_expects(bundle):
    path, manifest, backbone, _ = bundle
    model = onnx.load(str(path))
    assert {o.domain: o.version for o in model.opset_import}[""] >= 20
    assert [p.key for p in model.metadata_props] == ["morphseek_manifest"]
    assert json.loads(model.metadata_props[0].value) == manifest == export.read_manifest(path)
    (loop,) = (n for n in model.graph.node if n.op_type == "Loop")
    (body,) = (a.g for a in loop.attribute if a.name == "body")
    modes = [
        a.s for n in body.node if n.op_type == "GridSample" for a in n.attribute if a.name == "mode"
    ]
    assert modes and set(modes) == {b"linear"}
    large = [t for t in model.graph.initializer if np.prod(t.dims) >= export.MIN_HALF_SIZE]
    assert large and all(t.data_type == onnx.TensorProto.FLOAT16 for t in large)
    assert not any(t.external_data for t in model.graph.initializer)
    assert "first" not in {t.name for t in model.graph.initializer}  # its steps have no views
    assert "segmentation" not in "".join(t.name for t in model.graph.initializer)
    shape = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in model.graph.input
    }
    assert list(shape) == ["fixed", "moving", "u_prev", "epsilon", "tau", "steps"]
    assert shape["fixed"][:2] == [1, 1] and all(isinstance(d, str) for d in shape["fixed"][2:])
    assert isinstance(shape["epsilon"][0], str) and shape["epsilon"][1] == 8
    assert [o.name for o in model.graph.output] == OUTPUTS
    # Weights, and what depends only on them and the fixed image, are outside the loop.
    assert not body.initializer and any(n.op_type == "AveragePool" for n in model.graph.node)
    assert manifest["size"] is None and manifest["precision"] == "float32"
    # the file's name stands in for one; what was not given is not in it
    named = [manifest[key] for key in ("name", "licence", "credit", "training_data")]
    assert named == ["tiny", "", "", []]
    assert manifest["latent"] == {"channels": 8, "stride": 8} and manifest["size_multiple"] == 8
    assert manifest["min_size"] == [24, 32, 24] and manifest["metrics"] == {"test_dice": 0.5}
    counted = sum(
        p.numel() for n, p in backbone.named_parameters() if not n.startswith("segmentation_head")
    )
    assert manifest["parameters"] == counted


def test_the_hash_covers_the_graph_and_nothing_else(bundle, tmp_path):
    path, manifest, _, _ = bundle
    model = onnx.load(str(path))
    # Independently: protobuf's own serialisation of the graph field.
    graph = model.graph.SerializeToString(deterministic=True)
    assert hashlib.sha256(graph).hexdigest() == manifest["sha256"]
    (tmp_path / "relabelled.onnx").write_bytes(
        path.read_bytes().replace(b'"steps": 3', b'"steps": 2')
    )
    assert export.read_manifest(tmp_path / "relabelled.onnx")["steps"] == 2


@pytest.mark.parametrize(
    "damage, error, message",
    [
        (lambda b: b[:2000], errors.ModelCorruptError, "cut short or is not ONNX"),
        (lambda b: b"no bundle", errors.ModelCorruptError, "cut short or is not ONNX"),
        (lambda b: b.replace(b'"format": 1', b'"format": 2'), errors.ModelVersionError, "format 2"),
        (lambda b: b.replace(b"__half", b"__hulf", 1), errors.ModelTamperedError, "signed off"),
    ],
)
def test_a_damaged_bundle_is_no_start(bundle, start, tmp_path, damage, error, message):
    other = tmp_path / "other.ONNX"
    other.write_bytes(damage(bundle[0].read_bytes()))
    with pytest.raises(error, match=message):
        start("best", init=other)


def test_reward_is_ncc_over_the_fixed_foreground_minus_njd():
    size = (16, 16, 16)
    fixed, _ = images(size, 5)
    perfect = float(export.label_free_reward(fixed, fixed, torch.zeros(1)))
    assert perfect == pytest.approx(1.0, abs=0.02)
    assert float(export.label_free_reward(fixed, torch.roll(fixed, 3, 4), torch.zeros(1))) < 0.7
    assert float(export.label_free_reward(fixed, fixed, torch.tensor([6.25]))) == pytest.approx(
        perfect - 6.25, abs=1e-5
    )


def test_a_bundle_has_every_weight_by_name(bundle):
    path, _, backbone, _ = bundle
    weights = export.bundle_weights(path, backbone)
    own = {k: v for k, v in backbone.state_dict().items() if not k.startswith("segmentation_head")}
    assert weights.keys() == own.keys()
    for k, v in own.items():
        # float16 holds this bundle's weights exactly.
        assert torch.equal(weights[k], v), k


def test_a_run_starts_from_a_bundle(start, bundle, tiny):
    path, _, backbone, _ = bundle
    config = tiny("best", run__iterations=1)
    trainer = start(config, init=path)
    assert torch.equal(trainer.backbone.flow.weight, backbone.flow.weight)
    options = {"widths": [4, 4, 4], "latent_channels": 8, "decoder": [8, 8]}
    other = tiny("best", run__iterations=1, model__options=options)
    with pytest.raises((ValueError, RuntimeError), match="size mismatch|does not fit"):
        start(other, "other", init=path)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name, half", [("voxelmorph-l", True), ("transmorph", False), ("nice-trans", False)]
)
def test_the_papers_networks(name, half, tmp_path):
    """Three steps of three trajectories at a size that their windows do not divide. In half
    precision, PyTorch's half precision is the reference.
    """
    changes = {"model.backbone": name, "model.options": SMALL[name], "model.squarings": 2}
    config = load("paper").replace(**changes, **{"model.parametrisation": "velocity"})
    backbone = export.random_backbone(config.model, 0)
    size = (64, 32, 96)
    if not backbone.any_size:
        refused(ValueError, "--size", export.export_bundle, backbone, config, tmp_path / "any.onnx")
    with pytest.raises(ValueError, match="multiple of 32"):
        export.export_bundle(backbone, config, tmp_path / "odd.onnx", size=(64, 40, 96))
    manifest = export.export_bundle(
        backbone, config, tmp_path / "bundle.onnx", size=size, half=half
    )
    assert manifest["size"] == manifest["min_size"] == list(size)
    assert manifest["precision"] == ("float16" if half else "float32")

    graph = export.StepGraph(backbone)
    fixed, moving = images(size, 1)
    noise = torch.randn(
        3, 3, *backbone.latent_shape(size), generator=torch.Generator().manual_seed(3)
    )
    u, rewards = torch.zeros(1, 3, *size), []
    with torch.no_grad():
        for eps in noise:
            us, _, reward, *_ = graph(fixed, moving, u, eps, torch.tensor([0.5]))
            u = us[reward.argmax()][None]
            rewards.append(reward)
    still = torch.zeros(1, 3, *size)
    feed = feed_of(fixed, moving, still, noise.flatten(0, 1), 0.5, steps=[3])
    ours = session(tmp_path / "bundle.onnx").run(["u", "reward"], feed)
    # float32: the required bound, 1e-4 voxel. float16 layers with float32 fields: 0.02 voxel.
    np.testing.assert_allclose(ours[0], us.numpy(), atol=0.02 if half else 1e-4)
    np.testing.assert_allclose(ours[1], torch.cat(rewards), atol=1e-3 if half else 1e-5)
    assert us.abs().max() > 1 and (us[0] - us[1]).abs().max() > 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["transmorph", "nice-trans"])
def test_a_run_starts_from_a_bundle_of_a_transformer(start, name, tiny, tmp_path):
    """In the file matrices are transposed, also square ones, and the attention's tables are
    expanded to pairs of voxels in a window.
    """
    config = tiny(
        "paper", model__backbone=name, model__options=SMALL[name], data__min_size=[32, 32, 64]
    )
    backbone = as_trained(export.random_backbone(config.model, 0), 0.02)
    size = (32, 32, 64)
    export.export_bundle(backbone, config, tmp_path / "bundle.onnx", size=size)
    trainer = start(config, "run", init=tmp_path / "bundle.onnx")
    own, found = backbone.state_dict(), trainer.backbone.state_dict()
    # Small windows do not use all of a table.
    assert all(torch.equal(found[k], v) for k, v in own.items() if not k.endswith(export.TABLE))
    pair = unlabelled(*images(size, 4))
    truth, ours = (register_sample(b.eval(), pair, 2)[-1] for b in (backbone, trainer.backbone))
    assert truth.abs().max() > 0.2
    np.testing.assert_allclose(ours, truth, atol=1e-5)
