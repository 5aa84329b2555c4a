"""The bytes of bodies in transfer: each key has a share of them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from app.gateway.edge.bodies import Bodies
from app.gateway.edge.errors import ApiError

MOST = 1000


def fill(bodies: Bodies, held: ExitStack, holder: str, size: int = 10) -> ApiError:
    """Send bodies of that holder until one is refused."""
    while True:
        body = held.enter_context(bodies.body(holder))
        try:
            body.add(size)
        except ApiError as error:
            return error


def test_a_key_with_many_bodies_leaves_room_for_another() -> None:
    bodies = Bodies(MOST)
    with ExitStack() as held:
        refused = fill(bodies, held, "nina")
        assert (refused.status, refused.message) == (429, "too many requests of this caller are in transfer")
        assert 0.7 * MOST < bodies.held < 0.8 * MOST
        with bodies.body("omar") as body:
            for _ in range(15):
                body.add(10)
    assert bodies.held == 0
    assert not bodies._holders


def test_all_bodies_together_have_a_limit() -> None:
    bodies = Bodies(MOST)
    with ExitStack() as held:
        refused = [fill(bodies, held, f"user {number}") for number in range(MOST)]
        assert bodies.held <= MOST
    assert (refused[-1].status, refused[-1].message) == (503, "too many requests are in transfer")


def test_who_sends_little_is_not_told_that_it_is_too_much() -> None:
    bodies = Bodies(MOST)
    with ExitStack() as held:
        for holder in "abcdefg":
            fill(bodies, held, holder)
        refused = fill(bodies, held, "nina")
    assert (refused.status, refused.message) == (503, "too many requests are in transfer")


def test_a_body_that_is_refused_holds_what_it_had_until_it_ends() -> None:
    bodies = Bodies(MOST)
    with bodies.body("nina") as body:
        body.add(600)
        with pytest.raises(ApiError):
            body.add(300)
        assert bodies.held == body.size == 600
    assert bodies.held == 0
