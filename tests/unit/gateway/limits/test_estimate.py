"""How long a request would wait, from offsets and ends."""

from __future__ import annotations

from app.gateway.limits.estimate import OLD_S, WINDOW_S, Estimate, Sample

Seen = tuple[float, int, int, int]


def estimate(*samples: Seen, max_in_flight: int = 10, after_s: float = 0.0) -> float:
    """The wait in partition 0 after (time, end, committed, ended) were seen."""
    made = Estimate(max_in_flight)
    for at, end, committed, ended in samples:
        made.add(Sample(at, {0: end}, {0: committed}, {0: ended}))
    return made.wait_s(0, (samples[-1][0] if samples else 0) + after_s)


def test_without_a_look_nothing_is_known_and_nothing_refused() -> None:
    assert estimate() == 0
    assert estimate((0, 10_000, 0, 0)) == 0


def test_what_fits_beside_those_under_way_waits_for_nothing() -> None:
    assert estimate((0, 100, 91, 0), (10, 109, 100, 9)) == 0


def test_the_wait_is_what_is_ahead_over_the_rate() -> None:
    # 100 lie beyond the 10 under way; 5 a second end.
    assert estimate((0, 100, 0, 0), (10, 160, 50, 50)) == 101 / 5


def test_a_partition_that_stands_still_waits_the_longer_the_longer_it_does() -> None:
    assert estimate((0, 12, 0, 0), (3, 12, 0, 0)) == 9
    assert estimate((0, 12, 0, 0), (3, 12, 0, 0), (30, 12, 0, 0)) == 90


def test_one_long_answer_that_holds_the_offset_back_is_no_backlog() -> None:
    ones_behind_it = [(float(at), 1 + 20 * at, 0, 20 * at) for at in range(100)]
    assert estimate(*ones_behind_it) == 0


def test_what_never_ends_is_forgotten_when_the_offset_passes_it() -> None:
    sent_twice = [(float(at), 20 * at, 20 * at, 0) for at in range(50)]
    assert estimate(*sent_twice) == 0


def test_what_is_older_than_the_window_does_not_count() -> None:
    long_idle = [(at * 3.0, 0, 0, 0) for at in range(100)]
    busy = [(300.0 + WINDOW_S / 2, 2000, 1000, 1000), (300.0 + WINDOW_S, 2000, 1900, 1900)]
    assert estimate(*long_idle, *busy) < (90 + 1) * WINDOW_S / 1000


def test_an_old_look_refuses_nobody() -> None:
    stuck = [(0.0, 1000, 0, 0), (10.0, 1000, 0, 0)]
    assert estimate(*stuck, after_s=OLD_S) > 0
    assert estimate(*stuck, after_s=OLD_S + 1) == 0


def test_one_partition_says_nothing_of_another() -> None:
    made = Estimate(10)
    for at in (0, 10):
        made.add(Sample(at, {0: 1000, 1: 5}, {0: 0, 1: 5}, {}))
    assert made.wait_s(0, 10) > 0
    assert made.wait_s(1, 10) == made.wait_s(2, 10) == 0
