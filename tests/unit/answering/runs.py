"""Runs whose stages a test calls itself, on a partition without Kafka."""

from __future__ import annotations

from app.answering.batches import Batches
from app.answering.pipeline import Pipeline, Run
from app.answering.stage import Feature
from app.delivery.inflight import InFlight
from app.settings import Settings
from app.wire.event import Plan
from models.paced import paced
from models.registry import ModelRegistry
from tables.conversations import MemoryRules
from tests.unit.delivery.fake_partition import FakePartition
from tests.unit.delivery.inflight_requests import inflight_of

SETTINGS = Settings(_env_file=None, max_tokens=8)
RULES = MemoryRules(turns=10, ttl_ms=10**15)


def pipeline_of(
    *features: Feature, models: ModelRegistry | None = None, settings: Settings = SETTINGS, rules: MemoryRules = RULES
) -> Pipeline:
    batches = Batches(max_size=8, budget_s=0.0)
    return Pipeline(settings, models or ModelRegistry(paced(1e6)), rules, batches, features)


def run_of(
    *features: Feature,
    inflight: InFlight | None = None,
    partition: FakePartition | None = None,
    models: ModelRegistry | None = None,
    settings: Settings = SETTINGS,
    rules: MemoryRules = RULES,
) -> Run:
    pipeline = pipeline_of(*features, models=models, settings=settings, rules=rules)
    return Run(pipeline, (partition or FakePartition()).real, inflight or inflight_of())


async def unchanged(plan: Plan) -> Plan:
    """The inner stages decide nothing."""
    return plan
