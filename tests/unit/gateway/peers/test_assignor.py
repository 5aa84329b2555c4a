from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.gateway.peers.assignor import divide, fleets_of

members = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3), st.sets(st.integers(0, 40)), min_size=1, max_size=6
)


@given(count=st.integers(1, 40), owned=members)
def test_divide_gives_each_partition_once_in_equal_shares(count: int, owned: dict[str, set[int]]) -> None:
    shares = divide(list(range(count)), owned)
    assert sorted(one for share in shares.values() for one in share) == list(range(count))
    assert max(map(len, shares.values())) - min(map(len, shares.values())) <= 1


@given(count=st.integers(1, 40), names=st.integers(1, 5))
def test_divide_moves_only_the_partitions_that_a_new_member_gets(count: int, names: int) -> None:
    before = divide(list(range(count)), {f"m{number}": () for number in range(names)})
    after = divide(list(range(count)), {**before, "new": ()})
    moved = sum(set(after[name]) != set(before[name]) and len(set(before[name]) - set(after[name])) for name in before)
    assert moved == len(after["new"])
    assert all(set(after[name]) <= set(before[name]) for name in before)


def test_divide_keeps_a_partition_that_two_claim_at_one_of_them() -> None:
    shares = divide([0, 1, 2, 3], {"a": [0, 1], "b": [1, 2]})
    assert sorted(shares["a"] + shares["b"]) == [0, 1, 2, 3]


def test_gateways_with_a_common_secret_are_one_fleet_while_it_is_replaced() -> None:
    assert fleets_of({"a": ["old"], "b": ["new", "old"], "c": ["old"]}) == [["a", "b", "c"]]
    assert fleets_of({"a": ["old"], "b": ["new", "old"], "c": ["new"]}) in ([["b", "c"], ["a"]], [["a", "b"], ["c"]])


def test_gateways_without_a_common_secret_are_fleets_of_their_own() -> None:
    assert fleets_of({"a": ["old"], "b": ["new"], "c": ["old"]}) == [["a", "c"], ["b"]]
    assert fleets_of({"a": [], "b": ["new"], "c": []}) == [["a", "c"], ["b"]]


@given(st.dictionaries(st.text("abc", min_size=1), st.sets(st.sampled_from("xyz"), max_size=2), min_size=1))
def test_every_gateway_is_in_one_fleet_and_knows_all_of_it(keys: dict[str, set[str]]) -> None:
    fleets = fleets_of(keys)
    assert sorted(name for fleet in fleets for name in fleet) == sorted(keys)
    for fleet in fleets:
        assert len(fleet) == 1 or set.intersection(*(keys[name] or {""} for name in fleet))
