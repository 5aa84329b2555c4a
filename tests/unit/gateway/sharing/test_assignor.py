from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.gateway.sharing.assignor import divide

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
