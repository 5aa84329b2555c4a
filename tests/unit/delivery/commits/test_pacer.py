"""CommitPacer: how long the next transaction of a worker waits."""

from __future__ import annotations

import pytest

from app.delivery.commits.pacer import CommitPacer


def test_lone_commits_do_not_wait() -> None:
    pacer = CommitPacer(per_s=10.0, burst=2, longest_s=1.0)
    assert [pacer.reserve(now / 10) for now in range(100)] == [0.0] * 100


def test_a_burst_passes_and_the_rest_is_spaced() -> None:
    pacer = CommitPacer(per_s=10.0, burst=2, longest_s=1.0)
    assert [pacer.reserve(5.0) for _ in range(5)] == pytest.approx([0.0, 0.0, 0.1, 0.2, 0.3])


def test_no_commit_waits_longer_than_the_longest_wait() -> None:
    pacer = CommitPacer(per_s=10.0, burst=2, longest_s=0.5)
    waits = [pacer.reserve(5.0) for _ in range(100)]
    assert max(waits) == pytest.approx(0.5)
    assert pacer.reserve(6.0) == 0.0, "the debt does not grow without bound"
