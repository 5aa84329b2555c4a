from __future__ import annotations

from app.features.routing.load_figures import Load
from app.features.routing.relief import Relief, ReliefState
from app.policy.file import Route, Until, When

ROUTE = Route(
    name="relief",
    when=When(first_token_p95_ms_above=250, for_s=10),
    until=Until(first_token_p95_ms_below=150, for_s=30),
    model="small",
)


def states(route: Route, *steps: tuple[float, float]) -> list[ReliefState]:
    relief = Relief(route)
    found = []
    for now, p95 in steps:
        relief.update(Load(p95), now)
        found.append(relief.state)
    return found


def test_a_route_is_on_after_the_load_has_lasted_and_off_after_the_calm_has_lasted() -> None:
    OFF, RISING, ON, FALLING = ReliefState  # noqa: N806
    steps = [(0, 100), (1, 300), (9, 300), (11, 300), (20, 200), (21, 100), (50, 100), (51, 100)]
    assert states(ROUTE, *steps) == [OFF, RISING, RISING, ON, ON, FALLING, FALLING, OFF]


def test_a_moment_of_calm_or_of_load_begins_the_wait_again() -> None:
    OFF, RISING, ON, FALLING = ReliefState  # noqa: N806
    assert states(ROUTE, (0, 300), (9, 100), (10, 300), (19, 300), (20, 300)) == [RISING, OFF, RISING, RISING, ON]
    assert states(ROUTE, (0, 300), (10, 300), (11, 100), (40, 200), (41, 100), (70, 100), (71, 100)) == [
        RISING, ON, FALLING, ON, FALLING, FALLING, OFF,
    ]  # fmt: skip


def test_without_times_a_route_follows_the_load_at_once() -> None:
    route = Route(name="full", when=When(queue_above=3), model="small")
    relief = Relief(route)
    for queue, is_on in ((3, False), (4, True), (3, False)):
        relief.update(Load(queue=queue), 0.0)
        assert relief.is_on is is_on
