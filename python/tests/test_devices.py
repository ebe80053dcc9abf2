"""The devices on which networks can run, as Python, the command and a panel show them."""

import onnxruntime

import morphseek
from helpers import Command


def test_devices_agree_with_onnxruntime(command: Command):
    found = morphseek.devices()
    assert found["version"] == onnxruntime.__version__
    assert set(found["providers"]) == set(onnxruntime.get_available_providers())
    devices = {device["name"]: device for device in found["devices"]}
    assert list(devices) == ["cpu", "cuda", "tensorrt"] and devices["cpu"]["usable"]
    for device in devices.values():
        assert device["usable"] == (not device["error"]) == (not device["remedy"])
    if "CUDAExecutionProvider" not in found["providers"]:
        assert "not enabled in this build" in devices["cuda"]["error"]
        assert "morphseek[gpu]" in devices["cuda"]["remedy"]

    text = " ".join(command("info", "devices").split())
    assert found["library"] in text and "cpu usable" in text
    assert all(device["error"] in text for device in devices.values())


def test_device_option(command: Command):
    words = ("register", "a", "b", "--out", "c", "--device")
    text = " ".join(command(*words, "gpu", expect=2).split())
    assert "--device" in text and "tensorrt, plugin:..." in text
    assert "plugin:..." in command("register", "--help")
    # fails at the images, which are missing, not at the device
    command(*words, "plugin:/no/such.so", expect=3)
