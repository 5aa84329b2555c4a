"""Windows of usage: what is reported, when, and that nothing is lost or counted twice on the way."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tables.records import RowChange
from tables.usage import ARRIVAL_MS, Latency, Tally, WindowKey, Windows

MINUTE = 60_000
GRACE = 120_000
START = 1_700_000_040_000  # a full minute


LATENCIES = {"first_token": Latency.of(20), "duration": Latency.of(300)}
TURN = Tally(requests=1, prompt_tokens=10, completion_tokens=5, cached_tokens=2, cost=0.5, **LATENCIES)


def count(windows: Windows, at: int, *, tenant: str = "", model: str = "m", turn: Tally = TURN) -> None:
    windows.count(at, (tenant, model, "", "", ""), turn, now=START * 2)


def windows_of(*ats: int, now: int = START * 2) -> Windows:
    windows = Windows(MINUTE, GRACE)
    for at in ats:
        windows.count(at, ("", "m", "", "", ""), TURN, now=now)
    return windows


def reported(windows: Windows) -> list[tuple[int, int, int]]:
    """(start, revision, requests) of what is reported now."""
    return [(key.start - START, tally.revision, tally.requests) for key, tally in windows.close()]


def test_a_window_is_told_once_the_watermark_has_passed_its_end() -> None:
    windows = windows_of(START, START + MINUTE - 1)
    assert reported(windows) == []
    count(windows, START + MINUTE + ARRIVAL_MS)
    assert reported(windows) == [(0, 1, 2)]
    assert reported(windows) == [], "once"


def test_a_late_turn_makes_a_new_revision_of_the_whole_window() -> None:
    windows = windows_of(START, START + MINUTE + ARRIVAL_MS)
    assert reported(windows) == [(0, 1, 1)]
    count(windows, START + 7)
    assert reported(windows) == [(0, 2, 2)]


def test_a_turn_past_the_grace_is_counted_in_the_open_window_and_called_late() -> None:
    open_window = START + MINUTE + GRACE + ARRIVAL_MS
    windows = windows_of(START, open_window)
    reported(windows)
    count(windows, START + 7)
    windows.advance(open_window + MINUTE)
    ((key, tally),) = list(windows.close())
    assert (key.start, tally.requests, tally.late) == (open_window - open_window % MINUTE, 2, 1)


def test_a_longer_grace_does_not_begin_a_forgotten_window_again() -> None:
    windows = windows_of(START)
    windows.advance(START + MINUTE + ARRIVAL_MS)
    assert reported(windows) == [(0, 1, 1)]
    windows.advance(START + MINUTE + GRACE + ARRIVAL_MS)
    assert reported(windows) == []
    rows = [(change.key, change.value) for change in windows.drain() if change.value is not None]
    patient = Windows.load(rows, length=MINUTE, grace=100 * GRACE)
    count(patient, START + 1)
    patient.advance(START + 60 * MINUTE)
    ((key, tally),) = patient.close()
    assert key.start >= START + MINUTE, "the first revision of that minute is out, and stays the last"
    assert (tally.revision, tally.requests, tally.late) == (1, 1, 1)


def test_the_clock_closes_windows_where_nothing_comes_any_more() -> None:
    windows = windows_of(START)
    assert windows.due_at == START + MINUTE + ARRIVAL_MS
    windows.advance(START + MINUTE + ARRIVAL_MS - 1)
    assert reported(windows) == []
    windows.advance(windows.due_at)
    assert reported(windows) == [(0, 1, 1)]
    windows.advance(windows.due_at or 0)
    assert reported(windows) == []
    assert windows.due_at is None, "past its grace it is forgotten"


def test_a_time_in_the_future_counts_as_now() -> None:
    windows = windows_of(START + 10 * MINUTE, now=START)
    windows.advance(START + MINUTE + ARRIVAL_MS)
    assert reported(windows) == [(0, 1, 1)]


def test_tenants_and_models_have_windows_of_their_own() -> None:
    windows = Windows(MINUTE, GRACE)
    for tenant, model in (("a", "m"), ("a", "n"), ("b", "m"), ("a", "m")):
        count(windows, START, tenant=tenant, model=model)
    windows.advance(START + MINUTE + ARRIVAL_MS)
    assert {(key.tenant, key.model): tally.requests for key, tally in windows.close()} == {
        ("a", "m"): 2,
        ("a", "n"): 1,
        ("b", "m"): 1,
    }


def test_a_tally_adds_up() -> None:
    windows = Windows(MINUTE, GRACE)
    count(windows, START)
    slow = msgspec.structs.replace(TURN, first_token=Latency(), duration=Latency.of(70_000))
    count(windows, START, turn=slow)
    windows.advance(START + MINUTE + ARRIVAL_MS)
    ((_, tally),) = windows.close()
    assert (tally.prompt_tokens, tally.completion_tokens, tally.cached_tokens, tally.cost) == (20, 10, 4, 1.0)
    assert (tally.first_token.count, tally.first_token.sum) == (1, 20)
    assert (tally.duration.count, tally.duration.max, tally.duration.buckets[-1]) == (2, 70_000, 1)


def test_a_latency_on_a_bound_is_within_it() -> None:
    assert Latency.of(10).buckets[:2] == (1, 0)
    assert Latency.of(11).buckets[:2] == (0, 1)


class Table:
    """What a changelog keeps of the rows that were drained."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.reported: list[tuple[WindowKey, Tally]] = []

    def commit(self, windows: Windows) -> None:
        self.reported += windows.close()
        for change in windows.drain():
            self._apply(change)

    def _apply(self, change: RowChange) -> None:
        if change.value is None:
            self.rows.pop(change.key, None)
        else:
            self.rows[change.key] = change.value

    def load(self) -> Windows:
        return Windows.load(self.rows.items(), length=MINUTE, grace=GRACE)


@given(st.lists(st.tuples(st.integers(0, 9 * MINUTE), st.sampled_from(["commit", "crash", "count"])), max_size=40))
def test_crashes_between_commits_change_nothing_of_what_is_told(steps: list[tuple[int, str]]) -> None:
    """A crash drops what was not committed; counting again from `next` makes up for it, and for nothing more."""
    table = Table()
    windows, log = table.load(), [START + at for at, _ in steps]
    for _, step in steps:
        if windows.next < len(log):
            count(windows, log[windows.next])
            windows.next += 1
        if step == "commit":
            table.commit(windows)
        elif step == "crash":
            windows = table.load()
    while windows.next < len(log):
        count(windows, log[windows.next])
        windows.next += 1
    windows.advance(START + 60 * MINUTE)
    table.commit(windows)
    newest = {}
    for key, tally in table.reported:
        assert tally.revision == (newest[key].revision if key in newest else 0) + 1
        newest[key] = tally
    assert sum(tally.requests for tally in newest.values()) == len(log)
    assert len(table.rows) <= 1, "all is forgotten but the progress"


def test_rows_are_json_that_any_tool_reads() -> None:
    windows = windows_of(START)
    rows = {msgspec.json.encode(msgspec.json.decode(change.key)): change.value for change in windows.drain()}
    assert b'["progress"]' in rows
    assert b'[1700000040000,60000,"","m"]' in rows
