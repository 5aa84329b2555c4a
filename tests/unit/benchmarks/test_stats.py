from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks import client as clients
from tests.benchmarks.client import Client
from tests.benchmarks.load import Ask, Load, Reply
from tests.benchmarks.report import markdown, write
from tests.benchmarks.result import Claim, Plot, Result, Series
from tests.benchmarks.stats import quantile, stats


def test_waits_count_from_the_planned_moment_and_those_that_never_end_are_infinite() -> None:
    replies = [Reply(1.0, [1.2, 1.3, 1.6], 3, 1.7), Reply(2.0, [2.5], 1, 2.6), Reply(3.0, failed=True)]
    figures = stats(replies, 10, 10)
    assert (figures.requests, figures.failed, figures.goodput) == (3, 1, 0.1)
    assert figures.first_p50 == pytest.approx(0.5)
    assert figures.first_p99 == math.inf
    assert figures.gap_p99 == pytest.approx(0.3)
    assert figures.tokens_per_s == pytest.approx(0.4)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_the_least_value_that_so_many_do_not_exceed(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert sum(value <= found for value in values) >= share * len(values)
    assert sum(value < found for value in values) < share * len(values)


@pytest.mark.parametrize("shape", ["poisson", "bursts"])
def test_arrivals_have_the_rate_that_was_asked_for_and_are_the_same_again(shape: str) -> None:
    load = Load(seconds=1000, rate=20, shape=shape)
    assert load.arrivals() == load.arrivals() == sorted(load.arrivals())
    assert len(load.arrivals()) == pytest.approx(20_000, rel=0.1)


async def test_a_system_that_stands_still_is_asked_no_less_and_its_queue_is_in_the_figures() -> None:
    stuck = asyncio.Lock()
    answering: list[asyncio.Task[None]] = []

    async def answer(ask: Ask) -> None:
        async with stuck:
            await asyncio.sleep(0.05)
            client.received(ask.request_id, 1)
            await client.ended(ask.request_id)

    async def send(ask: Ask, _reply: Reply) -> None:
        answering.append(asyncio.create_task(answer(ask)))

    client = Client(send)
    load = Load(seconds=0.3, rate=60)
    replies = await client.run(load)
    assert len(replies) == len(load.arrivals())
    # one after the other: the last has waited for almost all of the others
    assert max(reply.first or 0 for reply in replies) > 0.05 * len(replies) - 0.35


async def test_a_closed_loop_keeps_so_many_open() -> None:
    most = now = 0

    async def send(ask: Ask, _reply: Reply) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)

        async def end() -> None:
            nonlocal now
            await asyncio.sleep(0.01)
            now -= 1
            await client.ended(ask.request_id)

        tasks.append(asyncio.create_task(end()))

    tasks: list[asyncio.Task[None]] = []
    client = Client(send)
    replies = await client.run(Load(seconds=1.0, at_once=3))
    assert most == 3
    assert len(replies) == len(tasks) > 3


async def test_what_is_never_answered_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PATIENCE_S", 0.05)

    async def send(_ask: Ask, _reply: Reply) -> None: ...

    replies = await Client(send).run(Load(seconds=0.05, rate=100))
    assert replies
    assert all(reply.failed for reply in replies)


def test_a_report_has_a_table_a_verdict_json_and_plots(tmp_path: Path) -> None:
    claims = [Claim("the ratio", 1.7, "<=", 1.5), Claim("another", 1.0, ">=", 0.95)]
    plots = [Plot("by name", "x", "y", [Series("a", ["1", "2"], [1.0, math.inf])], log=True, line=2.0)]
    plots.append(Plot("by number", "x", "y", [Series("a", [1.0, 2.0], [1.0, 2.0])]))
    result = Result("part", "title", ["name", "ms"], [["a", 1.234], ["b", math.inf]], claims, plots)
    text = markdown(result)
    assert "| b    | never |" in text
    assert "- the ratio: 1.70 (<= 1.50: MISSED)" in text
    assert "- another: 1.00 (>= 0.95: kept)" in text
    written = write(tmp_path / "out", {"cores": "2", "CPU": "x"}, [result])
    assert [path.name for path in written] == ["results.json", "results.md", "part-1.png", "part-2.png"]
    assert all(path.stat().st_size > 100 for path in written)
