"""Write docs/chart.md from the chart's values and their comments: python -m tests.unit.deploy.chart_table"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
VALUES = ROOT / "deploy" / "helm" / "parley" / "values.yaml"
DOCUMENT = ROOT / "docs" / "chart.md"
_LINE = re.compile(r"^(?P<indent> *)(?P<key>[\w./-]+):(?P<rest>.*)$")
_COMMENT = re.compile(r"\s+#\s(?P<text>.*)$")
_HEAD = """# The chart's values

[deploy/helm/parley](../deploy/helm/parley) installs workers, gateways and their topics; how, and for whom, is in
[operations](operations.md#containers-and-kubernetes). This table is written from `values.yaml` and its comments
(`python -m tests.unit.deploy.chart_table`). [values.schema.json](../deploy/helm/parley/values.schema.json) refuses
names that are not here or no settings. Numbers and booleans become the text that was written, but for a `tag` like
1.10: quote that.

| value | default | what it is |
|---|---|---|
"""


class Value(NamedTuple):
    path: str
    default: str
    about: str


def values(text: str) -> Iterator[Value]:
    """Each value with its comment: behind it, or in the lines above it. A comment above a group is the group's."""
    above: list[str] = []
    parents: list[tuple[int, str]] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            above.append(line.lstrip("# "))
            continue
        found = _LINE.match(line)
        if found is None:
            above = []
            continue
        indent = len(found["indent"])
        parents = [*(parent for parent in parents if parent[0] < indent), (indent, found["key"])]
        behind = _COMMENT.search(found["rest"])
        default = _COMMENT.sub("", found["rest"]).strip()
        about = behind["text"] if behind else " ".join(above)
        yield Value(".".join(key for _, key in parents), default, about)
        above = []


def document() -> str:
    rows = [one for one in values(VALUES.read_text()) if one.default or one.about]
    lines = [f"| `{one.path}` | {_code(one.default)} | {one.about.replace('|', '/')} |\n" for one in rows]
    return _HEAD + "".join(lines)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    DOCUMENT.write_text(document())
