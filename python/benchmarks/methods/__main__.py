"""Runs one step of one method in this process: python -m methods version|register|field NAME [JOB]
with JOB as JSON.
"""

import json
import sys
from pathlib import Path

from . import METHODS, Job


def main() -> None:
    step, name, *rest = sys.argv[1:]
    method = METHODS[name]
    if step == "version":
        print(method.version())
        return
    content = json.loads(rest[0])
    job = Job(**{**content, **{key: Path(content[key]) for key in ("fixed", "moving", "folder")}})
    if step == "register":
        method.register(job)
    else:
        import SimpleITK as sitk

        sitk.WriteImage(method.field(job), str(job.folder / "field.mha"))


main()
