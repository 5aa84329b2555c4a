"""How long a request would wait, from offsets."""

from __future__ import annotations

from app.gateway.backlog import WINDOW_S, Estimate, Sample


def estimate(*samples: tuple[float, int, int], max_in_flight: int = 10) -> float:
    """The wait in partition 0 after (time, end, committed) were seen."""
    made = Estimate(max_in_flight)
    for at, end, committed in samples:
        made.add(Sample(at, {0: end}, {0: committed}))
    return made.wait_s(0)


def test_without_a_look_nothing_is_known_and_nothing_refused() -> None:
    assert estimate() == 0
    assert estimate((0, 10_000, 0)) == 0


def test_what_fits_beside_those_under_way_waits_for_nothing() -> None:
    assert estimate((0, 100, 91), (10, 109, 100)) == 0


def test_the_wait_is_what_is_ahead_over_the_rate() -> None:
    # 100 lie beyond the 10 under way; 5 a second end.
    assert estimate((0, 100, 0), (10, 160, 50)) == 101 / 5


def test_a_partition_that_stands_still_waits_the_longer_the_longer_it_does() -> None:
    assert estimate((0, 12, 0), (3, 12, 0)) == 9
    assert estimate((0, 12, 0), (3, 12, 0), (30, 12, 0)) == 90


def test_what_is_older_than_the_window_does_not_count() -> None:
    long_idle = [(at * 3.0, 0, 0) for at in range(100)]
    busy = [(300.0 + WINDOW_S / 2, 2000, 1000), (300.0 + WINDOW_S, 2000, 1900)]
    assert estimate(*long_idle, *busy) < (90 + 1) * WINDOW_S / 1000


def test_one_partition_says_nothing_of_another() -> None:
    made = Estimate(10)
    for at in (0, 10):
        made.add(Sample(at, {0: 1000, 1: 5}, {0: 0, 1: 5}))
    assert made.wait_s(0) > 0
    assert made.wait_s(1) == made.wait_s(2) == 0
