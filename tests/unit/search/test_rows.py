from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.search.rows import MAX_TEXT_BYTES, IndexRow, TurnSide, cut, request_id_of, rows_of, turn_id
from app.wire.turn import Turn
from models.interface.generation import FinishReason, Usage


def turn(prompt: str = "where is it", answer: str = "on its way", tenant: str | None = None) -> Turn:
    return Turn(
        user_id="ann/b:c",
        request_id="r:1",
        conversation_id="c",
        prompt=prompt,
        answer=answer,
        finish_reason=FinishReason.STOP,
        usage=Usage(3, 4),
        model_version="demo",
        created_at=1_700_000_000_000,
        tenant=tenant,
    )


def test_turn_is_one_row_for_each_side() -> None:
    user, assistant = rows_of(turn(tenant="acme"))
    at = 1_700_000_000_000
    assert user == IndexRow("ann/b:c/r:1:user", "where is it", "ann/b:c", "c", "acme", "user", "demo", at, at)
    assert (assistant.turn_id, assistant.text, assistant.role) == ("ann/b:c/r:1:assistant", "on its way", "assistant")


def test_empty_answer_has_no_row_and_no_tenant_is_an_empty_one() -> None:
    (row,) = rows_of(turn(answer=""))
    assert (row.role, row.tenant) == ("user", "")


@given(user=st.text(min_size=1), request=st.from_regex(r"[A-Za-z0-9._:-]{1,64}", fullmatch=True))
def test_request_is_read_back_from_every_key(user: str, request: str) -> None:
    assert request_id_of(turn_id(user, request, TurnSide.USER)) == request
    assert request_id_of(turn_id(user, request, TurnSide.ASSISTANT)) == request


@given(text=st.text(), most=st.integers(0, 20))
def test_cut_is_the_longest_beginning_within_the_bytes(text: str, most: int) -> None:
    begun = cut(text, most)
    assert text.startswith(begun)
    assert len(begun.encode()) <= most
    if begun != text:
        assert len(text[: len(begun) + 1].encode()) > most


@pytest.mark.parametrize("character", ["x", "é", "😀"])
def test_text_is_whole_up_to_the_limit(character: str) -> None:
    count = MAX_TEXT_BYTES // len(character.encode())
    (row,) = rows_of(turn(prompt=character * count + "x" * 10, answer=""))
    assert row.text.startswith(character * count)
    assert len(row.text.encode()) == MAX_TEXT_BYTES
