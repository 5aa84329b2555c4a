"""Runs whose stages a test calls itself, on a partition without Kafka."""

from __future__ import annotations

from typing import Any

from app.answering.batches import Batches
from app.answering.pipeline import Answering, Pipeline
from app.answering.run import Run
from app.answering.stage import Feature, Stage, Switch
from app.delivery.inflight import InFlight
from app.settings import Settings
from app.wire.event import Plan
from models.served.paced import paced
from models.served.registry import ModelRegistry
from tables.conversations import MemoryRules
from tests.unit.delivery.fake_partition import FakePartition
from tests.unit.delivery.inflight_requests import inflight_of

SETTINGS = Settings(_env_file=None, max_tokens=8)
RULES = MemoryRules(turns=10, ttl_ms=10**15)


def pipeline_of(
    *features: Feature, models: ModelRegistry | None = None, settings: Settings = SETTINGS, rules: MemoryRules = RULES
) -> Pipeline:
    batches = Batches(max_size=8, budget_s=0.0)
    return Pipeline(settings, models or ModelRegistry(paced(1e6)), rules, batches, Switch(features))


def answering_of(
    *features: Feature,
    inflight: InFlight | None = None,
    partition: FakePartition | None = None,
    models: ModelRegistry | None = None,
    settings: Settings = SETTINGS,
    rules: MemoryRules = RULES,
) -> Answering:
    pipeline = pipeline_of(*features, models=models, settings=settings, rules=rules)
    return Answering(pipeline, (partition or FakePartition()).real, inflight or inflight_of())


def run_of(*features: Feature, **given: Any) -> Run:
    return answering_of(*features, **given).run


def run_and_stage_of(feature: Feature, **given: Any) -> tuple[Run, Stage]:
    """The run of a request of which this feature has the only stage, on or off."""
    run = answering_of(**given).run
    stage = feature.stage(run)
    assert stage is not None
    run.sees = (stage.see,)
    return run, stage


async def unchanged(plan: Plan) -> Plan:
    """The inner stages decide nothing."""
    return plan
