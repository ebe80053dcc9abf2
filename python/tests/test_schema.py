"""Checks a real report, options and failures against the schemas by the package jsonschema."""

import json
from typing import Any

import pytest

import morphseek
from helpers import Command
from morphseek import errors, schema
from morphseek._engine.options import all_options

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")


def valid(name: str, content: Any) -> bool:
    made = schema.SCHEMAS[name]()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made).is_valid(content)


def test_a_real_report(result: morphseek.Registration, tmp_path):
    result.save(tmp_path)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert valid("result", report)
    assert not valid("result", {**report, "njd_percent": "none"})
    del report["verdict"]
    assert not valid("result", report)


@pytest.mark.parametrize(
    "given, good",
    [
        ({"preset": "fast", "smoothness": 2.5, "device": "plugin:a.so"}, True),
        ({"smoothness": "low", "tau": 0.5}, True),
        ({"preset": "slow"}, False),
        ({"smoothness": 1000}, False),
        ({"steps": 17}, False),
        ({"device": "tpu"}, False),
        ({"similarty": "ncc"}, False),
    ],
)
def test_options_as_the_engine_takes_them(given: dict[str, Any], good: bool):
    assert valid("options", given) is good
    if good:
        assert valid("options", all_options(given))
    else:
        with pytest.raises(errors.InvalidArgumentError):
            all_options(given)


def test_a_failure(command: Command):
    said = command.json("register", "none.nii", "none.nii", "--out", "x", expect=3)
    assert valid("errors", said)
    said["error"]["code"] += 1
    assert not valid("errors", said)


def test_the_command(command: Command):
    assert command("info", "schema").split() == list(schema.SCHEMAS)
    assert json.loads(command("info", "schema", "options")) == schema.options()
