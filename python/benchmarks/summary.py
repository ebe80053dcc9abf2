"""Makes the table (Markdown and JSON) and its pictures from the rows of a run."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from morphseek.scoring import signed_rank_p

Row = dict[str, Any]


def write(out: Path) -> None:
    """Write table.md, table.json and the pictures from what lies in `out`."""
    rows: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(out.glob("rows/*/*/*.json")):
        row = json.loads(path.read_text())
        rows[row["data"]][row["method"]].append(row)
    run = json.loads((out / "run.json").read_text())
    run["left_out"] = json.loads((out / "left_out.json").read_text())
    table = {**run, "data": {data: summarise(methods) for data, methods in rows.items()}}
    (out / "table.json").write_text(json.dumps(table, indent=1) + "\n")
    (out / "table.md").write_text(markdown(table, rows))
    _accuracy_against_time(out / "accuracy_time.png", table["data"])
    _time_against_size(out / "time_size.png", table["data"])
    _memory(out / "memory.png", table["data"])


def summarise(methods: dict[str, list[Row]]) -> dict[str, dict[str, Any]]:
    """Return the statistics of every method over its pairs of one data set, best mean Dice first.

    A failed pair counts with the Dice of the unregistered pair, which is in its row; its cost does
    not count. `against` compares one of ours with the peer with the best mean Dice: mean difference
    and two-sided Wilcoxon signed-rank test over the pairs of both.
    """
    figures = {name: _figures(rows) for name, rows in methods.items()}
    order = sorted(figures, key=lambda name: -figures[name]["mean_dice"])
    peers = [name for name in order if methods[name][0].get("ours") is False]
    # in an incomplete run, only peers that have run on all pairs
    most = max((figures[name]["pairs"] for name in peers), default=0)
    peer = next((name for name in peers if figures[name]["pairs"] == most), None)
    for name in order:
        if peer is not None and methods[name][0].get("ours"):
            figures[name]["against"] = {"peer": peer, **_compare(methods[name], methods[peer])}
    return {name: figures[name] for name in order}


def _figures(rows: list[Row]) -> dict[str, Any]:
    fine = [row for row in rows if row["status"] == "ok"]

    def over(statistic: Any, key: str) -> float | None:
        values = [row[key] for row in fine if row.get(key) is not None]
        return float(statistic(values)) if values else None

    dice = [row["mean_dice"] for row in rows]
    return {
        "pairs": len(rows),
        "failed": len(rows) - len(fine),
        "mean_dice": float(np.mean(dice)),
        "worst_dice": float(np.min(dice)),
        "mean_hd95": over(np.mean, "mean_hd95"),
        "njd_percent": over(np.mean, "njd_percent"),
        "sdlogj": over(np.mean, "sdlogj"),
        "median_seconds": over(np.median, "seconds"),
        "median_cpu_seconds": over(np.median, "cpu_seconds"),
        "start_cpu_seconds": over(np.median, "start_cpu_seconds"),
        "peak_mib": None if (peak := over(np.max, "peak_bytes")) is None else peak / 2**20,
        "megavoxels": (
            float(np.median([np.prod(row["fixed_size"]) for row in rows])) / 1e6
            if "fixed_size" in rows[0]
            else None
        ),
        "how": rows[-1].get("how", "the pair as it lies in space"),
        "version": rows[-1].get("version", ""),
    }


def _compare(ours: list[Row], theirs: list[Row]) -> dict[str, Any]:
    other = {(row["fixed"], row["moving"]): row["mean_dice"] for row in theirs}
    pairs = [
        (row["mean_dice"], other[key])
        for row in ours
        if (key := (row["fixed"], row["moving"])) in other
    ]
    difference = np.array([a - b for a, b in pairs])
    return {
        "pairs": len(pairs),
        "mean_difference": float(difference.mean()) if len(pairs) else None,
        "p": signed_rank_p(difference),
    }


_COLUMNS = (
    "method | pairs (failed) | Dice mean | worst | HD95 mm | NJD % | SDlogJ | median s | CPU s | of"
    " it start | peak MiB | against the best peer"
).split(" | ")


def markdown(table: dict[str, Any], rows: dict[str, dict[str, list[Row]]]) -> str:
    """Return the table, how each number was measured, and which methods failed where."""
    machine = table["machine"]
    lines = [
        (
            f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, GPU:"
            f" {machine['gpu']}; {machine['system']}, Python {machine['python']};"
            f" {table['threads']} thread(s) a method; load average when it began"
            f" {machine['load_average']}."
        ),
        "",
    ]
    for data, methods in table["data"].items():
        lines += [
            f"### {data}",
            "",
            _line(_COLUMNS),
            "|---|" + "---:|" * (len(_COLUMNS) - 2) + "---|",
        ]
        lines += [_line(_cells(name, figures)) for name, figures in methods.items()]
        lines.append("")
    lines += ["### Methods", ""]
    legend = {
        name: figures for methods in table["data"].values() for name, figures in methods.items()
    }
    lines += [
        f"- **{name}** {figures['version']}: {figures['how']}."
        for name, figures in sorted(legend.items())
    ]
    if table["left_out"]:
        lines += ["", "### Not run", ""] + [
            f"- **{name}**: {why}" for name, why in sorted(table["left_out"].items())
        ]
    failures = [
        row
        for methods in rows.values()
        for of_method in methods.values()
        for row in of_method
        if row["status"] != "ok"
    ]
    if failures:
        lines += ["", "### Failures", ""]
        lines += [
            f"- {row['data']}, {row['fixed']} <- {row['moving']}, **{row['method']}**:"
            f" {row['status']}: {row['reason']}"
            for row in failures
        ]
    return "\n".join(lines) + "\n"


def _cells(name: str, figures: dict[str, Any]) -> list[str]:
    def shown(key: str, form: str) -> str:
        return "" if figures[key] is None else format(figures[key], form)

    against = ""
    if found := figures.get("against"):
        against = (
            f"{found['mean_difference']:+.3f} ({found['peer']}, p = {found['p']:.2g})"
            if found["pairs"]
            else "no pair in common"
        )
    failed = f" ({figures['failed']})" if figures["failed"] else ""
    numbers = (
        ("mean_dice", ".3f"),
        ("worst_dice", ".3f"),
        ("mean_hd95", ".2f"),
        ("njd_percent", ".3f"),
        ("sdlogj", ".2f"),
        ("median_seconds", ".1f"),
    )
    costs = (("median_cpu_seconds", ".1f"), ("start_cpu_seconds", ".1f"), ("peak_mib", ".0f"))
    return [
        name,
        f"{figures['pairs']}{failed}",
        *(shown(*number) for number in (*numbers, *costs)),
        against,
    ]


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


# ----------------------------------------------------------------------------------------- Pictures


def _styles(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each method's colour and marker in all pictures: ours are blue discs, peers have warm
    colours and other shapes.
    """
    import matplotlib

    names = sorted(
        {
            name
            for methods in data.values()
            for name, figures in methods.items()
            if figures["median_cpu_seconds"] is not None
        }
    )
    ours = [name for name in names if name.startswith("morphseek")]
    peers = [name for name in names if name not in ours]
    blues, warm = matplotlib.colormaps["winter"], matplotlib.colormaps["autumn"]
    styles = {
        name: {"color": blues(i / max(len(ours) - 1, 1)), "marker": "o"}
        for i, name in enumerate(ours)
    }
    return {
        **styles,
        **{
            name: {"color": warm(0.8 * i / max(len(peers) - 1, 1)), "marker": "s^Dv<>P*"[i % 8]}
            for i, name in enumerate(peers)
        },
    }


def _figure(panels: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 + 4.5 * panels, 4.2), layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _plain_log(axis: Any) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _accuracy_against_time(path: Path, data: dict[str, Any]) -> None:
    styles = _styles(data)
    figure, panels = _figure(len(data))
    handles = {}
    for axes, (name, methods) in zip(panels, data.items()):
        for method, figures in methods.items():
            if method in styles:
                handles[method] = axes.scatter(
                    figures["median_cpu_seconds"], figures["mean_dice"], s=60, **styles[method]
                )
            elif figures["version"] == "":
                axes.axhline(figures["mean_dice"], color="0.6", linestyle=":", label="unregistered")
        axes.set(xscale="log", xlabel="CPU seconds, median", ylabel="mean Dice", title=name)
        _plain_log(axes.xaxis)
        axes.grid(alpha=0.3)
    figure.legend(handles.values(), handles, loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=120)


def _time_against_size(path: Path, data: dict[str, Any]) -> None:
    figure, (axes,) = _figure(1)
    for method, style in _styles(data).items():
        points = sorted(
            (m[method]["megavoxels"], m[method]["median_cpu_seconds"])
            for m in data.values()
            if method in m and m[method]["median_cpu_seconds"]
        )
        axes.plot(*zip(*points), label=method, **style)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="megavoxels of the fixed image",
        ylabel="CPU seconds, median",
    )
    _plain_log(axes.xaxis)
    _plain_log(axes.yaxis)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=120)


def _memory(path: Path, data: dict[str, Any]) -> None:
    styles = _styles(data)
    figure, panels = _figure(len(data))
    for axes, (name, methods) in zip(panels, data.items()):
        shown = sorted(
            (figures["peak_mib"], method) for method, figures in methods.items() if method in styles
        )
        axes.barh(
            [method for _, method in shown],
            [peak for peak, _ in shown],
            color=[styles[method]["color"] for _, method in shown],
        )
        axes.set(xlabel="peak memory, MiB", title=name)
    figure.savefig(path, dpi=120)
