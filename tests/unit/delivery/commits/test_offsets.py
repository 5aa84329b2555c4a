from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.delivery.commits.handover import Offsets


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    """Offsets with holes, and an order in which some of them finish, group by group."""
    steps = draw(st.lists(st.integers(1, 3), min_size=1, max_size=30))
    offsets = [sum(steps[: i + 1]) for i in range(len(steps))]
    finished = draw(st.permutations(offsets))[: draw(st.integers(0, len(offsets)))]
    groups: list[list[int]] = []
    while finished:
        size = draw(st.integers(1, len(finished)))
        groups, finished = [*groups, list(finished[:size])], finished[size:]
    return offsets, groups


@given(histories())
def test_what_a_successor_takes_is_exactly_what_is_open(history: tuple[list[int], list[list[int]]]) -> None:
    taken, groups = history
    offsets = Offsets.resume(0)
    assert all(offsets.add(offset, tokens_offset=offset) for offset in taken)
    head, ahead = offsets.head(), offsets.ahead()
    for group in groups:
        # What is committed with the group is what holds after it.
        head, ahead = offsets.head(group), offsets.ahead(group)
        offsets.finish(group)
        assert (offsets.head(), offsets.ahead()) == (head, ahead)
    finished = {offset for group in groups for offset in group}
    successor = Offsets.resume(head, ahead)
    again = [offset for offset in taken if offset >= head and successor.add(offset, tokens_offset=0)]
    assert again == [offset for offset in taken if offset not in finished]
    assert not any(offset < head for offset in taken if offset not in finished)


@given(histories())
def test_the_token_offset_covers_every_answer_that_stays_open(history: tuple[list[int], list[list[int]]]) -> None:
    taken, groups = history
    offsets = Offsets.resume(0)
    for offset in taken:
        offsets.add(offset, tokens_offset=1000 - offset)
    for group in groups:
        began = offsets.tokens_from(group)
        offsets.finish(group)
        still_open = set(taken).difference(*groups[: groups.index(group) + 1])
        assert began == min((1000 - offset for offset in still_open), default=None)


@given(st.lists(st.integers(0, 20), max_size=60))
def test_a_record_that_comes_again_is_taken_once(came: list[int]) -> None:
    offsets = Offsets.resume(0)
    taken = [offset for offset in came if offsets.add(offset, tokens_offset=0)]
    assert len(taken) == len(set(taken))


def test_what_finishes_ahead_of_an_open_record_holds_the_head_back() -> None:
    offsets = Offsets.resume(10)
    for offset in (10, 11, 12):
        offsets.add(offset, tokens_offset=0)
    offsets.finish([12])
    assert (offsets.head(), offsets.ahead()) == (10, [12])
    offsets.finish([10, 11])
    assert (offsets.head(), offsets.ahead(), offsets.tokens_from()) == (13, [], None)


def test_what_a_former_owner_has_finished_is_committed_with_the_record_before_it() -> None:
    offsets = Offsets.resume(10, ahead=(11, 12, 14))
    offsets.add(10, 0)
    assert offsets.head([10]) == 13, "11 and 12 are not delivered yet, and nothing is committed when they are"
    offsets.finish([10])
    assert not offsets.add(11, 0)
    assert not offsets.add(12, 0)
    assert offsets.add(13, 0)
    assert offsets.head([13]) == 15


def test_what_came_before_is_not_waited_for_behind_a_hole() -> None:
    offsets = Offsets.resume(6, ahead=[7])  # 6 is a marker of a transaction, and 7 has come before
    assert offsets.head() == 6
    assert offsets.skip_to(8)
    assert offsets.head() == 8
    assert not offsets.skip_to(8)


def test_skipping_passes_no_open_record() -> None:
    offsets = Offsets.resume(5)
    offsets.add(6, 0)
    offsets.skip_to(9)
    assert offsets.head() == 6
    assert not offsets.add(8, 0)
