from __future__ import annotations

from app.features.routing.load_figures import Load
from app.features.routing.router import Router
from app.policy.file import Arm, Policy, Route, Until, When
from app.wire.event import Plan
from app.wire.request import Priority, Request

SHORT = Route(name="short", when=When(prompt_tokens_below=5), model="small")
ACME = Route(name="acme", when=When(tenant=("acme",), priority=(Priority.BATCH,)), model="large")
RELIEF = Route(
    name="relief",
    when=When(queue_above=2, for_s=5),
    until=Until(queue_below=1),
    model="small",
    notice="degraded",
)
TONE = Route(
    name="tone-test",
    experiment="tone",
    arms=(Arm(model="default", weight=0), Arm(model="small", weight=1)),
)


class Watched:
    def __init__(self, *routes: Route) -> None:
        self.now = 0.0
        self.load = Load()
        self.router = Router(Policy(routes=routes), lambda: self.now, lambda: self.load)

    def decide(self, tokens: int = 10, **fields: object) -> Plan | None:
        return self.router.decide(Request(**{"request_id": "r", "user_id": "u", **fields}), lambda: tokens)


def test_the_first_route_whose_conditions_hold_decides() -> None:
    watched = Watched(SHORT, ACME, TONE)
    assert watched.decide(4) == Plan(model="small", route="short")
    assert watched.decide(5, tenant="acme", priority=Priority.BATCH) == Plan(model="large", route="acme")
    assert watched.decide(5, tenant="acme") == Plan(model="small", route="tone-test", experiment="tone", arm="small")


def test_a_request_that_names_a_model_is_not_routed() -> None:
    assert Watched(SHORT).decide(1, model="default") is None


def test_a_request_that_no_route_takes_is_not_decided() -> None:
    assert Watched(ACME).decide() is None
    assert Watched().decide() is None


def test_a_route_that_depends_on_load_is_taken_while_it_is_on() -> None:
    watched = Watched(RELIEF)
    watched.load = Load(queue=3)
    assert watched.decide() is None
    watched.now = 6.0
    assert watched.decide() == Plan(model="small", route="relief", notice="degraded")
    watched.load, watched.now = Load(queue=0), 7.0
    watched.router.update()
    assert watched.decide() is None


def test_a_route_that_stays_the_same_keeps_its_state_when_the_policy_changes() -> None:
    watched = Watched(RELIEF)
    watched.load = Load(queue=3)
    watched.router.update()
    watched.now = 5.0
    watched.router.update()
    watched.router.use(Policy(routes=(SHORT, RELIEF)))
    assert watched.decide() == Plan(model="small", route="relief", notice="degraded")
    watched.router.use(Policy(routes=(TONE,)))
    assert watched.router.reliefs == {}
