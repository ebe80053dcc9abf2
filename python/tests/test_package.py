"""The wheel's metadata."""

import importlib.metadata
import re
from pathlib import Path

from morphseek._engine import core

REPOSITORY = Path(__file__).parents[2]


def test_licences():
    package = importlib.metadata.distribution("morphseek")
    assert package.metadata["License-Expression"] == "Apache-2.0 AND CC-BY-SA-4.0"
    assert package.metadata["Author"] == "The MorphSeek authors"
    texts = {
        Path(str(path)).name: package.locate_file(path).read_text(encoding="utf-8")
        for path in package.files or ()
        if ".dist-info/licenses" in str(path)
    }
    assert texts["LICENSE"] == (REPOSITORY / "LICENSE").read_text(encoding="utf-8")
    for model in core.models():  # every network's licence and credit is given
        manifest = model["manifest"]
        assert manifest["name"] in texts["NOTICE"] and manifest["licence"] in texts["NOTICE"]
        credit = manifest["credit"].split(";")[0]
        assert credit in re.sub(r"\s+", " ", texts["NOTICE"])
