"""Registers a cohort with nipype: cohort.py FIXED MOVING_FOLDER OUT [--processes N] [--plugin
MultiProc|SLURM|SGE|Dask] [option=value ...]

Brings every image in MOVING_FOLDER onto FIXED, each by its own run of MorphSeekRegistration, N at a
time. On a cluster, give the cluster's plugin. Finished runs are not repeated. The results lie in
OUT/cohort/_moving_.../register/; OUT/cohort.csv has a line for each.
"""

import argparse
import csv
import json
import shutil
from pathlib import Path

from nipype import Node, Workflow
from nipype.interfaces.utility import IdentityInterface

from morphseek.hosts.nipype import MorphSeekRegistration


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fixed", type=Path)
    parser.add_argument("moving", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--plugin", default="MultiProc")
    parser.add_argument(
        "options",
        nargs="*",
        metavar="option=value",
        help="options of the registration, such as preset=fast",
    )
    args = parser.parse_intermixed_args()
    if shutil.which("MorphSeekRegistration") is None:
        parser.error("MorphSeekRegistration is not on PATH; add the bin folder of the installation")

    images = Node(IdentityInterface(fields=["moving"]), name="images")
    images.iterables = ("moving", sorted(str(path.resolve()) for path in args.moving.iterdir()))
    register = Node(
        MorphSeekRegistration(fixed=str(args.fixed.resolve())), name="register", n_procs=1
    )
    for option in args.options:
        name, value = option.split("=", 1)
        setattr(
            register.inputs,
            name,
            json.loads(value) if value.lstrip("-").replace(".", "").isdigit() else value,
        )

    workflow = Workflow(name="cohort", base_dir=str(args.out.resolve()))
    workflow.connect(images, "moving", register, "moving")
    workflow.run(plugin=args.plugin, plugin_args={"n_procs": args.processes})

    columns = ("similarity", "similarity_before", "similarity_after", "njd_percent")
    with open(args.out / "cohort.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("moving", *columns, "seconds"))
        for path in sorted((args.out / "cohort").glob("*/register/*_report.json")):
            report = json.loads(path.read_text())
            table.writerow(
                (
                    path.name.removesuffix("_report.json"),
                    *(report[name] for name in columns),
                    report["seconds"]["total"],
                )
            )


if __name__ == "__main__":
    main()
