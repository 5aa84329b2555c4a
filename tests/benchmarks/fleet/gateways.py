"""Processor time a token of 1, 2 and 4 gateways that share the partitions; `tests.benchmarks.gateways` has the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from app.settings import Settings
from tests.benchmarks.fleet.costs import Costs
from tests.benchmarks.gateways import PARTITIONS, Load, Shared, shared
from tests.benchmarks.progress import report
from tests.benchmarks.result import Result

COLUMNS = [
    "gateways",
    "µs a token, all together",
    "records read by each, %",
    "idle ms/s each",
    "p50 ms",
    "p99 ms",
    "broken",
]


async def run(broker: str, folder: Path, costs: Costs, *, short: bool) -> tuple[Result, Costs]:
    settings = Settings(
        _env_file=None,
        broker=broker,
        topic_prefix="fleet-gateways-",
        app_id="fleet-gateways",
        data_dir=folder / "data",
        partitions=PARTITIONS,
        gateway_start_s=0.0,
        gateway_wait_s=60.0,
    )
    load = Load(10, tokens=20, rate=7.5) if short else Load(100, tokens=150, rate=7.5)
    found: list[Shared] = []
    for count in (1, 2) if short else (1, 2, 4):
        report(f"{count} gateways")
        found.append(await shared(settings, folder, count, replace(load, streams=load.streams * count)))
    result = Result("gateways", f"{load.streams} streams of {load.rate:g} tokens/s for each gateway", COLUMNS)
    result.rows = [
        [
            one.gateways, one.token_s * 1e6, ", ".join(f"{100 * share:.0f}" for share in one.shares), one.idle_s * 1e3,
            one.p50 * 1e3, one.p99 * 1e3, one.broken,
        ]
        for one in found
    ]  # fmt: skip
    alone, most = found[0], found[-1]
    passed_on = (most.token_s - alone.token_s) / (1 - 1 / most.gateways)  # of four, three in four tokens are
    return result, msgspec.structs.replace(
        costs, gateway_token_s=alone.token_s, gateway_passed_on_s=max(0.0, passed_on)
    )
