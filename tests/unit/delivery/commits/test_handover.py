from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.delivery.commits.handover import (
    MAX_BYTES,
    MAX_MODELS_BYTES,
    Handover,
    are_all_stated,
    decode_handover,
    encode_metadata,
    finished_ahead,
    models_served,
)

offset = st.integers(0, 2**53)


@st.composite
def handovers(draw: st.DrawFn, most: int = 40) -> Handover:
    head = draw(offset)
    reach = draw(st.sampled_from((30, 10_000)))  # a short one has runs of neighbours
    ahead = draw(st.sets(st.integers(head + 1, head + reach), max_size=most))
    models = tuple(draw(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=4)))
    lost = draw(st.integers(-1, 2**53))
    return Handover(head, draw(offset), draw(offset), draw(offset), tuple(sorted(ahead)), lost, models)


@given(handovers())
def test_a_checkpoint_comes_back_as_it_was(handover: Handover) -> None:
    assert decode_handover(handover.head, encode_metadata(handover)) == handover


def test_too_many_runs_lose_their_far_end_and_fit_what_a_broker_takes() -> None:
    handover = Handover(10**12, 10**12, 10**12, 10**12, tuple(10**12 + 1 + 2 * n for n in range(5000)))
    metadata = encode_metadata(handover)
    kept = decode_handover(handover.head, metadata).ahead
    assert MAX_BYTES - 100 < len(metadata) <= MAX_BYTES
    assert kept == handover.ahead[: len(kept)]
    assert len(kept) > 500


@given(st.integers(-1, 2**40), st.text())
def test_metadata_of_somebody_else_reads_as_none(head: int, metadata: str) -> None:
    assert decode_handover(head, metadata) == Handover(head=head)


@pytest.mark.parametrize(
    "metadata",
    [
        {"v": 1, "e": 3, "t": 4, "f": 2, "a": [1]},
        {"v": 1, "e": 3, "t": 4, "f": 2, "a": [1, 1 << 60]},
        {"v": 1, "e": 3, "t": 4, "f": 2, "a": [-5, 2]},
        {"v": 2, "e": 3, "t": 4, "f": 2, "a": []},
        {"v": 1, "e": 3, "t": 4, "a": []},
    ],
)
def test_metadata_that_only_looks_like_ours_reads_as_none(metadata: dict) -> None:
    assert decode_handover(7, json.dumps(metadata)) == Handover(head=7)


def test_an_offset_that_was_never_committed_is_no_checkpoint() -> None:
    assert decode_handover(-1, "") == Handover()


def test_neighbours_are_one_run() -> None:
    assert json.loads(encode_metadata(Handover(head=5, ahead=(6, 7, 8, 20, 21))))["a"] == [1, 3, 11, 2]


def test_finished_ahead_is_counted_without_listing_it() -> None:
    ahead = (11, 12, 20, 21, 22)
    assert finished_ahead(encode_metadata(Handover(10, ahead=ahead))) == len(ahead)
    assert finished_ahead("written by hand") == finished_ahead("") == 0


def test_more_models_than_have_room_lose_the_last_ones_and_leave_room_for_runs() -> None:
    models = tuple(f"модель-{number}" for number in range(1000))
    ahead = tuple(range(11, 5000, 2))
    metadata = encode_metadata(Handover(10, 10**12, 10**12, 10**12, ahead, models=models))
    kept = models_served(metadata)
    assert kept == models[: len(kept)]
    assert not are_all_stated(kept)
    assert are_all_stated(models[:3])
    assert MAX_MODELS_BYTES - 30 < len("".join(f'"{name}",' for name in kept).encode()) <= MAX_MODELS_BYTES
    assert len(metadata.encode()) <= MAX_BYTES
    assert len(decode_handover(10, metadata).ahead) > 300


@pytest.mark.parametrize("metadata", ["", "foreign", '{"v":1,"e":3,"t":4,"f":2,"a":[],"m":7}'])
def test_metadata_of_somebody_else_or_of_a_release_before_states_no_models(metadata: str) -> None:
    assert models_served(metadata) == ()
    assert models_served('{"v":1,"e":3,"t":4,"f":2,"a":[]}') == ()
