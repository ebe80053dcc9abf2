"""Measures what the filter costs over the C interface: benchmark.py PROGRAM FIXED MOVING [--runs
N].

PROGRAM is itkMorphSeekBenchmark (cmake --build build --target itkMorphSeekBenchmark). The filter
and the C interface run by turns, each in its own process. Overhead is the time outside the engine,
relative to the engine's, so that it holds on a busy machine.
"""

import argparse
import statistics
import subprocess

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("program")
parser.add_argument("fixed")
parser.add_argument("moving")
parser.add_argument("--runs", type=int, default=5)
args = parser.parse_args()

measured = {"c": [], "filter": []}
for _ in range(args.runs):
    for way, rows in measured.items():
        printed = subprocess.run(
            [args.program, way, args.fixed, args.moving], check=True, capture_output=True, text=True
        ).stdout
        rows.append([float(number) for number in printed.split()])

print(
    f"{'':8}  seconds  engine's  outside  peak MiB  (medians of {args.runs}; a volume is"
    f" {measured['c'][0][3]:.1f} MiB)"
)
for way, rows in measured.items():
    seconds, engine, peak = (statistics.median(row[i] for row in rows) for i in range(3))
    outside = statistics.median(row[0] - row[1] for row in rows)
    print(f"{way:8} {seconds:8.2f} {engine:9.2f} {outside:8.3f} {peak:9.1f}")
extra = statistics.median(row[0] - row[1] for row in measured["filter"]) - statistics.median(
    row[0] - row[1] for row in measured["c"]
)
print(f"overhead {100 * extra / statistics.median(row[1] for row in measured['c']):.2f} %")
