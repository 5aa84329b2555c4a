"""The rows of `seeds.txt`: `python -m tests.seeds` counts them by status and says which proof is missing."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
STATUSES = ("works", "in part", "never ran", "explained")
ENDS = (61, 106, 156, 222, 271)
"""The first number behind the rows of each seed."""


@dataclass(frozen=True, slots=True)
class SeedRow:
    number: int
    status: str
    what: str
    proofs: tuple[str, ...]


def rows(text: str | None = None) -> list[SeedRow]:
    lines = (TESTS.joinpath("seeds.txt").read_text() if text is None else text).splitlines()
    found = []
    for line in lines:
        if line and not line.startswith("#"):
            number, status, what, proofs = (part.strip() for part in line.split("|"))
            found.append(SeedRow(int(number), status, what, tuple(one.strip() for one in proofs.split(";"))))
    return found


def missing(proof: str) -> str | None:
    """What of a proof is not there."""
    page, words_begin, words = proof.partition(": ")
    if words_begin:
        file = ROOT / page
        said = " ".join(file.read_text().split()) if file.is_file() else ""
        return None if words and words in said else f"{page} does not say {words!r}"
    name, _, test = proof.partition("::")
    file = TESTS / name
    if not file.is_file() or not file.name.startswith("test_"):
        return f"there is no {proof}"
    functions = {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    }
    return None if (test in functions if test else functions) else f"there is no {proof}"


def wrong(all_rows: list[SeedRow]) -> list[str]:
    numbers = [row.number for row in all_rows]
    found = [f"row {number} is there twice" for number, times in Counter(numbers).items() if times > 1]
    for row in all_rows:
        found += [f"row {row.number}: {lack}" for lack in map(missing, row.proofs) if lack]
        if row.status not in STATUSES or not 0 <= row.number < ENDS[-1]:
            found.append(f"row {row.number}: {row.status}")
        if (
            row.status == "works"
            and not any(": " not in proof for proof in row.proofs)
            and "docs/operations.md" not in row.proofs[0]
        ):
            found.append(f"row {row.number} works, and no test shows it")
    return found


def main() -> int:
    all_rows = rows()
    for seed, end in enumerate(ENDS):
        begin = ENDS[seed - 1] if seed else 0
        counted = Counter(row.status for row in all_rows if begin <= row.number < end)
        counted["unlisted"] = end - begin - counted.total()
        print(f"seed {seed:03}: " + ", ".join(f"{counted[status]} {status}" for status in (*STATUSES, "unlisted")))
    print("all: " + ", ".join(f"{Counter(row.status for row in all_rows)[status]} {status}" for status in STATUSES))
    print(*(found := wrong(all_rows)), sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
