"""How long a request would wait, from offsets and ends."""

from __future__ import annotations

from app.gateway.callers.estimate import OLD_S, WINDOW_S, Sample, WaitEstimate

Seen = tuple[float, int, int, int]


def estimate(*samples: Seen, max_in_flight: int = 10, after_s: float = 0.0) -> float:
    """The wait in partition 0, after (time, end, committed, ended) were seen, of the user of all requests."""
    made = WaitEstimate(max_in_flight)
    made.users(0).change("nina", 1_000_000, samples[0][0] if samples else 0)
    for at, end, committed, ended in samples:
        made.add(Sample(at, {0: end}, {0: committed}, {0: ended}))
    return made.wait_s(0, "nina", (samples[-1][0] if samples else 0) + after_s)


def flooded(*, ends: int, rate: float = 1.0) -> WaitEstimate:
    """`nina` has that many requests open, of which `rate` end per second."""
    made = WaitEstimate(10)
    made.users(0).change("nina", ends, 0)
    for at in (0, 10):
        made.add(Sample(at, {0: ends}, {0: 0}, {0: int(rate * at)}))
    return made


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
    made = WaitEstimate(10)
    for at in (0, 10):
        made.users(0).change("nina", 500, at)
        made.add(Sample(at, {0: 1000, 1: 5}, {0: 0, 1: 5}, {}))
    assert made.wait_s(0, "nina", 10) > 0
    assert made.wait_s(1, "nina", 10) == made.wait_s(2, "nina", 10) == 0


def test_a_users_burst_delays_that_user_and_no_other() -> None:
    made = flooded(ends=3000)
    assert made.wait_s(0, "nina", 10) > 2900
    assert made.wait_s(0, "omar", 10) == 0


def test_who_has_requests_open_waits_for_them_and_for_as_many_of_each_other_user() -> None:
    made = flooded(ends=3000)
    made.users(0).change("omar", 20, 10)
    # 20 of his own and 21 of hers, of which 10 run; 1 a second ends.
    assert made.wait_s(0, "omar", 10) == 41 - 10 + 1
    made.users(0).change("omar", -20, 10)
    assert made.wait_s(0, "omar", 10) == 0


def test_very_many_users_delay_everyone() -> None:
    made = flooded(ends=3000)
    for number in range(200):
        made.users(0).change(f"user-{number}", 5, 10)
    assert made.wait_s(0, "omar", 10) == 201 - 10 + 1


def test_a_tenants_many_users_delay_another_tenants_user_by_one_request() -> None:
    made = flooded(ends=3000)
    for number in range(400):
        made.users(0).change(f"acme/user-{number}", 1, 10)
    assert made.wait_s(0, "bigcorp/ceo", 10) == made.wait_s(0, "omar", 10) == 0
    assert made.wait_s(0, "acme/one-more", 10) == 400 + 401 - 10 + 1, "of nina as many as of the tenant"
    made.users(0).change("bigcorp/ceo", 20, 10)
    # 20 of the tenant's own and 21 of each of two others, of which 10 run.
    assert made.wait_s(0, "bigcorp/ceo", 10) == 20 + 21 + 21 - 10 + 1
    assert made.wait_s(0, "bigcorp/coo", 10) == 0


def test_requests_of_no_known_user_delay_nobody() -> None:
    made = WaitEstimate(10)
    for at in (0, 10):
        made.add(Sample(at, {0: 100_000 + at}, {0: 0}, {0: at}))
    assert made.wait_s(0, "omar", 10) == 0


def test_dead_letters_finish_without_an_end() -> None:
    open_, finished = 40_000, 20_000
    made = WaitEstimate(10)
    made.users(0).change("omar", open_, 0)
    made.add(Sample(0, {0: open_}, {0: 0}, {}))
    made.add(Sample(10, {0: open_}, {0: finished}, {}))
    assert 9 < made.wait_s(0, "omar", 10) < 11


def test_what_never_ends_is_nobodys_once_the_partition_has_been_idle() -> None:
    made = WaitEstimate(10)
    for at, end in ((0, 100), (2, 100), (4, 100), (6, 100)):
        made.users(0).change("lena", 1, at)
        made.add(Sample(at, {0: end}, {0: 0 if at == 0 else end}, {}))
        if at == 0:
            made.users(0).change("nina", 5, at)
    assert (made.users(0).open("nina"), made.users(0).open("lena")) == (0, 4)


def test_users_of_partitions_that_moved_are_not_remembered() -> None:
    made = flooded(ends=100)
    made.keep([1])
    assert made.users(0).open("nina") == 0
