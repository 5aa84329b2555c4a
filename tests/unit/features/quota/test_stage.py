"""What counts for a tenant: everything that was computed for it."""

from __future__ import annotations

from app.features.quota.figures import TenantFigures
from app.features.quota.stage import Quota
from app.features.quota.tenants import Tenants
from app.policy.file import Policy, TenantRule
from app.prices import PriceList
from app.settings import Settings
from app.wire.event import ErrorInfo, EventType, TokenEvent
from app.wire.event import Usage as UsageOnWire
from models.served.paced import paced
from models.served.registry import ModelRegistry
from tests.unit.answering.runs import run_and_stage_of
from tests.unit.delivery.inflight_requests import ASKED_AT, inflight_of, outcome_of

POLICY = Policy(tenants={"acme": TenantRule(tokens_per_min=100)})
DONE = TokenEvent(type=EventType.DONE, usage=UsageOnWire(3, 4, 0))
ERROR = TokenEvent(type=EventType.ERROR, error=ErrorInfo("deadline_exceeded", "late"))


def counted(end: TokenEvent, spent: int) -> float:
    tenants = Tenants(POLICY, TenantFigures(lambda: ASKED_AT, lambda: {3}, 8))
    quota = Quota(tenants, PriceList(Settings(_env_file=None).prices, POLICY), ModelRegistry(paced(10.0)))
    run, stage = run_and_stage_of(quota, inflight=inflight_of(user_id="acme/nina", tenant="acme"))
    stage.committed(outcome_of(run.inflight, end, spent=spent))
    return tenants.figures.own_minute("acme").tokens


def test_tokens_without_a_usage_count_too() -> None:
    assert counted(DONE, 0) == 7
    assert counted(DONE, 5) == 12
    assert counted(ERROR, 5) == 5
    assert counted(ERROR, 0) == 0
