"""Each row of the seeds has a proof that is there."""

from __future__ import annotations

import pytest

from tests import seeds


def test_each_row_has_its_status_and_its_proof() -> None:
    rows = seeds.rows()
    assert len(rows) >= 156
    assert seeds.wrong(rows) == []


@pytest.mark.parametrize(
    ("row", "lacks"),
    [
        ("1 | works | x | unit/no/test_such.py", "there is no unit/no/test_such.py"),
        ("1 | works | x | unit/test_seeds.py::test_of_nothing", "there is no unit/test_seeds.py::test_of_nothing"),
        ("1 | explained | x | docs/not-there.md: a sentence of nobody", "docs/not-there.md does not say"),
        ("1 | explained | x | docs/nowhere.md: a", "docs/nowhere.md does not say"),
        ("1 | works | x | README.md: Parley", "no test shows it"),
        ("1 | done | x | unit/test_seeds.py", "row 1: done"),
        ("271 | works | x | unit/test_seeds.py", "row 271"),
    ],
)
def test_a_row_without_proof_is_told(row: str, lacks: str) -> None:
    (told,) = seeds.wrong(seeds.rows(row))
    assert lacks in told
