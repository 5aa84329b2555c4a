"""Texts of one request beside those of others, with the real embedder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest

from app.gateway.asking import searching
from app.gateway.asking.searching import Searching
from app.gateway.edge.errors import ApiError
from app.settings import Settings
from models.embedder import load_embedder

TEXTS = [
    f"The order {number} was sent and has not arrived at the address of the customer. " * 6 for number in range(256)
]


@pytest.fixture
async def texts(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Searching]:
    monkeypatch.setattr(searching, "EMBED_S", 600.0)  # no machine is too slow for these texts
    made = Searching(Settings(_env_file=None))
    await made.embed("lena", ["loaded"])
    yield made
    await made.stop()


async def test_many_texts_of_one_user_delay_those_of_another_by_a_turn_each(texts: Searching) -> None:
    many = asyncio.create_task(texts.embed("nina", TEXTS))
    await asyncio.sleep(0.2)
    for number in range(3):
        await texts.embed("omar", [f"hello {number}"])
        assert not many.done()
    vectors, _ = await many
    assert len(vectors) == len(TEXTS)


async def test_slices_give_what_the_embedder_gives(texts: Searching) -> None:
    mixed = [text[: 10 + 7 * number] for number, text in enumerate(TEXTS[:50])]
    vectors, tokens = await texts.embed("nina", mixed)
    embedder = load_embedder("minilm")
    try:
        assert np.allclose(vectors, await embedder.embed(mixed), atol=1e-4)
        assert tokens == embedder.count_tokens(mixed)
    finally:
        embedder.close()


async def test_more_than_can_be_embedded_in_time_is_refused(texts: Searching, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "EMBED_S", 0.5)
    with pytest.raises(ApiError, match=r"input: \d+ of 2048 texts .* send at most \d+ texts") as refused:
        await texts.embed("nina", TEXTS * 8)
    assert (refused.value.status, refused.value.param) == (413, "input")
    monkeypatch.setattr(searching, "EMBED_S", 600.0)
    await texts.embed("nina", ["still served"])


async def test_what_will_not_be_embedded_in_time_is_refused_at_once(
    texts: Searching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "EMBED_S", 10.0)
    monkeypatch.setattr(searching, "_JUDGED_S", 0.1)
    began = time.process_time()
    with pytest.raises(ApiError, match=r"of 16384 texts .* within 10 s; send at most \d+ texts"):
        await texts.embed("nina", TEXTS * 64)
    assert time.process_time() - began < 9


async def test_texts_behind_those_of_others_are_refused_as_overload(
    texts: Searching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "EMBED_S", 0.1)
    async with texts._embeddings.turn("nina"):
        with pytest.raises(ApiError, match=r"0 of 1 texts .* those of others") as refused:
            await texts.embed("omar", ["hello"])
    assert (refused.value.status, refused.value.retry_after_s) == (503, 0.05)
