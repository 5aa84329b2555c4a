"""What a large fleet needs, on paper: the measured costs, multiplied.

Assumptions, which no run here can test:

- A worker serves an engine that decodes `SEQUENCES` answers at once at `TOKENS_S` tokens/s each (a GPU), and `TOKENS`
  for each request.
- Costs a request and a token stay what they are in a larger fleet. `workers` and `gateways` show where they do not.
- Kafka keeps three replicas; each follower costs its broker what a read costs, so a request costs twice what it costs a
  lone broker. A broker has `BROKER_CORES` cores and holds `BROKER_PARTITIONS` replicas of partitions, as Apache Kafka
  advises.
- Every answer has one reader at a gateway chosen at random, so all but one in n tokens are passed on.
- Cores are used to 70 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.benchmarks.fleet.costs import Costs
from tests.benchmarks.result import Plot, Result, Series

SEQUENCES = 32
TOKENS_S = 30.0
TOKENS = 300
USED = 0.7
REPLICAS = 3
TOPICS = 8  # partitioned by user: requests, controls, tokens, turns, three changelogs, audit
BROKER_CORES = 8
BROKER_PARTITIONS = 4000
BROKER_BYTES_S = 100e6
READERS_A_GATEWAY = 20_000
REQUEST_BYTES = 8_000  # of all records but tokens: request, turn, conversation row, ended id
MEMBERS = 200
"""Members of one consumer group. Larger groups need a trial first."""
COLUMNS = [
    "fleet", "streams", "tokens/s", "requests/s", "worker cores for the pipeline, each", "partitions", "gateways",
    "gateway memory GB", "brokers for processor", "for bytes", "for partitions", "Kafka GB/s in, with replicas",
    "breaks first",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Need:
    name: str
    streams: int
    tokens_s: float
    requests_s: float
    worker_cores: float
    partitions: int
    gateways: int
    gateway_bytes: float
    brokers: tuple[int, int, int]
    """For processor time, for bytes, for partitions."""
    kafka_bytes_s: float
    breaks_first: str


def run(costs: Costs) -> Result:
    fleets = [("10 workers", 10, 320), ("100 workers", 100, 3_200), ("1,000 workers", 1_000, 32_000)]
    million = 1_000_000
    # Of a million open streams one in ten is being answered; the others are open pages.
    fleets.append(("a million streams", math.ceil(million / 10 / SEQUENCES), million))
    needs = [need(name, workers, streams, costs) for name, workers, streams in fleets]
    result = Result("model", "What a large fleet needs (reckoned, not measured)", COLUMNS)
    result.rows = [
        [
            one.name, f"{one.streams:,}", f"{one.tokens_s:,.0f}", f"{one.requests_s:,.0f}", one.worker_cores,
            one.partitions, one.gateways, one.gateway_bytes / 1e9, *one.brokers, one.kafka_bytes_s / 1e9,
            one.breaks_first,
        ]
        for one in needs
    ]  # fmt: skip
    names = [one.name for one in needs]
    result.plots = [
        Plot(
            "Machines of a fleet (reckoned)",
            "fleet",
            "number",
            [
                Series("gateways", [*names], [float(one.gateways) for one in needs]),
                Series("brokers", [*names], [float(max(one.brokers)) for one in needs]),
            ],
            log=True,
        )
    ]
    request_ms, broker_ms = costs.worker_request_s * 1e3, costs.broker_request_s * 1e3
    token_us, passed_us = costs.gateway_token_s * 1e6, costs.gateway_passed_on_s * 1e6
    result.notes.append(
        f"A request takes {request_ms:.1f} ms of a worker and {broker_ms:.1f} ms of a broker; a token "
        f"{costs.worker_token_s * 1e6:.0f} µs of a worker, {costs.broker_token_s * 1e6:.0f} µs of a broker, "
        f"{token_us:.0f} µs of a gateway, and {passed_us:.0f} µs more if it is passed on. {SEQUENCES} answers a worker "
        f"at {TOKENS_S:g} tokens/s, {TOKENS} tokens each; one in ten of a million streams is being answered."
    )
    return result


def need(name: str, workers: int, streams: int, costs: Costs) -> Need:
    answers = workers * SEQUENCES
    tokens_s = answers * TOKENS_S
    requests_s = tokens_s / TOKENS
    partitions = 2 * workers
    gateways = _gateways(tokens_s, streams, costs)
    worker_s = costs.worker_request_s + TOKENS * costs.worker_token_s
    broker_s = costs.broker_request_s + TOKENS * costs.broker_token_s
    worker_cores = requests_s * worker_s / workers + costs.worker_idle_share
    in_bytes_s = tokens_s * costs.token_record_bytes + requests_s * REQUEST_BYTES
    brokers = (
        math.ceil(2 * requests_s * broker_s / (BROKER_CORES * USED)),
        math.ceil(REPLICAS * in_bytes_s / BROKER_BYTES_S),
        math.ceil(REPLICAS * TOPICS * partitions / BROKER_PARTITIONS),
    )
    lowest = max(REPLICAS, *brokers)
    limits = []
    if workers > MEMBERS:
        limits.append(f"the workers' group of {workers:,}: {math.ceil(workers / MEMBERS)} cells")
    if gateways > MEMBERS:
        limits.append(f"the gateways' group of {gateways:,}: {math.ceil(gateways / MEMBERS)} cells")
    if not limits:
        limits.append("gateways" if gateways > lowest else "brokers" if lowest > REPLICAS else "the engines")
    return Need(
        name, streams, tokens_s, requests_s, worker_cores, partitions, gateways, streams * costs.gateway_reader_bytes,
        brokers, REPLICAS * in_bytes_s, "; ".join(limits),
    )  # fmt: skip


def _gateways(tokens_s: float, streams: int, costs: Costs) -> int:
    """One process is one core. The share that is passed on depends on the number, so this is a fixed point."""
    gateways = 1
    for _ in range(20):
        passed_on = costs.gateway_passed_on_s * (1 - 1 / gateways)
        cores = tokens_s * (costs.gateway_token_s + passed_on) / USED
        gateways = max(1, math.ceil(cores), math.ceil(streams / READERS_A_GATEWAY))
    return gateways
