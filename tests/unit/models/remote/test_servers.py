"""Which server of several a request goes to."""

from __future__ import annotations

from collections import Counter

import pytest

from models.remote.servers import MOST_FAILURES, Circuit, ModelServer, Servers

USERS = [f"user-{number}" for number in range(200)]


def servers_of(count: int, latency_s: float = 0.5) -> tuple[Servers, list[ModelServer]]:
    ones = [ModelServer(f"http://server-{number}/v1", None) for number in range(count)]
    for one in ones:
        one.answered(latency_s)
    return Servers(ones, max_running=64), ones


async def home_of(servers: Servers, user: str) -> ModelServer:
    server = await servers.enter((), 1.0, user)
    servers.leave(server)
    return server


async def homes_of(servers: Servers) -> dict[str, ModelServer]:
    return {user: await home_of(servers, user) for user in USERS}


async def test_a_user_stays_with_a_server_and_users_are_spread() -> None:
    servers, ones = servers_of(4)
    homes = await homes_of(servers)
    assert await homes_of(servers) == homes
    counts = Counter(one.url for one in homes.values())
    assert len(counts) == len(ones)
    assert min(counts.values()) > 25


async def test_one_more_server_takes_a_part_of_each_others_users_and_no_other_moves() -> None:
    before = {user: one.url for user, one in (await homes_of(servers_of(4)[0])).items()}
    servers, ones = servers_of(5)
    after = {user: one.url for user, one in (await homes_of(servers)).items()}
    moved = {user for user in USERS if before[user] != after[user]}
    assert {after[user] for user in moved} == {ones[-1].url}
    assert 15 < len(moved) < 70


async def test_a_crowd_of_one_server_goes_to_the_others() -> None:
    servers, ones = servers_of(2)
    for _ in range(16):
        await servers.enter((), 1.0, "one user with many conversations")
    assert max(one.running for one in ones) <= 10


@pytest.mark.parametrize(("latency_s", "stays"), [(0.05, True), (0.9, True), (2.0, False)])
async def test_a_user_leaves_a_server_that_is_much_slower(latency_s: float, stays: bool) -> None:
    servers, ones = servers_of(2)
    home = await home_of(servers, "nina")
    (other,) = [one for one in ones if one is not home]
    home.latency_s, other.latency_s = latency_s, 0.02 if latency_s < 0.1 else 0.5
    assert (await home_of(servers, "nina") is home) == stays


async def test_servers_get_requests_in_proportion_to_their_speed() -> None:
    servers, (slow, fast) = servers_of(2)
    slow.latency_s, fast.latency_s = 0.4, 0.1
    for _ in range(10):
        await servers.enter((), 1.0)
    assert (slow.running, fast.running) == (2, 8)


async def test_a_user_leaves_a_server_that_failed_and_comes_back() -> None:
    servers, _ = servers_of(3)
    home = await home_of(servers, "nina")
    assert await servers.enter((home,), 1.0, "nina") is not home
    for _ in range(MOST_FAILURES):
        home.failed("it is away")
    assert await servers.enter((), 1.0, "nina") is not home
    home.probed(answers=True)
    assert await servers.enter((), 1.0, "nina") is home


async def test_a_request_without_a_user_goes_to_the_quickest() -> None:
    servers, ones = servers_of(3)
    ones[1].latency_s = 0.1
    assert await home_of(servers, "") is ones[1]


def failed(server: ModelServer, *requests: tuple[str, str], is_unreachable: bool = False) -> Circuit:
    for user, request in requests:
        server.failed("status 500", user=user, request=request, is_unreachable=is_unreachable)
    return server.circuit


def test_one_users_prompts_take_no_server_from_the_others() -> None:
    server = ModelServer("http://server/v1", None)
    assert failed(server, *(("mallory", f"r{number}") for number in range(50))) is Circuit.CLOSED
    assert failed(server, ("nina", "r50")) is Circuit.OPEN


def test_failures_of_two_users_open_a_circuit_unless_the_server_has_answered_between_them() -> None:
    server = ModelServer("http://server/v1", None)
    assert failed(server, ("nina", "r0"), ("olaf", "r1")) is Circuit.CLOSED
    server.answered(0.1)
    assert failed(server, ("nina", "r2"), ("olaf", "r3")) is Circuit.CLOSED
    assert failed(server, ("nina", "r4")) is Circuit.OPEN


def test_a_request_counts_once_however_often_it_is_tried_and_not_at_all_if_it_fails_elsewhere() -> None:
    server = ModelServer("http://server/v1", None)
    assert failed(server, ("nina", "r0"), ("nina", "r0"), ("olaf", "r1"), ("olaf", "r1")) is Circuit.CLOSED
    server.excuse("r1")
    assert failed(server, ("nina", "r2")) is Circuit.CLOSED


def test_a_server_that_cannot_be_reached_is_away_whoever_finds_out() -> None:
    server = ModelServer("http://server/v1", None)
    assert failed(server, *[("nina", "r0")] * MOST_FAILURES, is_unreachable=True) is Circuit.OPEN


@pytest.mark.parametrize("answers", [True, False])
def test_a_probe_decides_about_a_server_that_fails_a_lone_user(answers: bool) -> None:
    server = ModelServer("http://server/v1", None)
    assert not server.is_suspect
    failed(server, *[("nina", "r0")] * MOST_FAILURES)
    assert server.is_suspect
    server.probed(answers=answers)
    assert server.circuit is (Circuit.CLOSED if answers else Circuit.OPEN)
    assert not server.is_suspect
