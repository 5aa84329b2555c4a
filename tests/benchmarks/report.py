"""Results as tables on stdout, as JSON, and as plots."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tests.benchmarks.result import Plot, Result


def text(value: str | float) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def markdown(result: Result) -> str:
    lines = [f"### {result.part}: {result.title}", ""]
    if result.rows:
        lines += _table(result.columns, [[text(cell) for cell in row] for row in result.rows])
    for claim in result.claims:
        kept = "kept" if claim.kept else "MISSED"
        lines.append(f"- {claim.text}: {text(claim.value)} ({claim.bound} {text(claim.target)}: {kept})")
    lines += [f"- {note}" for note in result.notes]
    return "\n".join([*lines, ""])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return [line(columns), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows), ""]


def write(folder: Path, about: Mapping[str, str], results: Sequence[Result]) -> list[Path]:
    """`results.json`, `results.md` and a PNG for every plot."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [folder / "results.json", folder / "results.md"]
    found[0].write_bytes(msgspec.json.format(msgspec.json.encode({"machine": about, "results": results}), indent=1))
    named = ", ".join(f"{name} {value}" for name, value in about.items())
    found[1].write_text("\n".join([f"Machine: {named}.", "", *map(markdown, results)]))
    for result in results:
        for number, plot in enumerate(result.plots):
            found.append(folder / f"{result.part}-{number + 1}.png")
            draw(plot, found[-1], f"{about['cores']} cores, {about['CPU']}")
    return found


def draw(plot: Plot, path: Path, machine: str) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - takes a second

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    named = any(isinstance(x, str) for series in plot.series for x in series.x)
    width = 0.8 / max(1, len(plot.series))
    for number, series in enumerate(plot.series):
        if named:
            places = [place + number * width for place in range(len(series.x))]
            axes.bar(places, [y if math.isfinite(y) else 0.0 for y in series.y], width, label=series.label)
            axes.set_xticks([place + 0.4 - width / 2 for place in range(len(series.x))], list(series.x))
        else:
            axes.plot(series.x, series.y, label=series.label)
    if plot.log:
        axes.set_yscale("log") if named else axes.set_xscale("log")
    if plot.line is not None:
        axes.axhline(plot.line, color="grey", linestyle="--", linewidth=1)
    axes.set(title=plot.title, xlabel=plot.x, ylabel=plot.y)
    axes.grid(alpha=0.3)
    if any(series.label for series in plot.series):
        axes.legend(fontsize=8)
    figure.text(0.995, 0.005, re.sub(r"\s+", " ", machine), ha="right", fontsize=6, color="grey")
    figure.savefig(path, dpi=120)
    plt.close(figure)
