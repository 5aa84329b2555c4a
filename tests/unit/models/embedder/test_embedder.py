from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from models.embedder import Embedder, EmbedderError, load_embedder
from models.embedder import embedder as module
from models.embedder.encoder import Vectors
from models.embedder.recipe import VectorRecipe
from tests.unit.models.embedder.tiny_encoder import DIMENSION, write_encoder


class Held:
    """An encoder that stands still until it is let go, and remembers what it was given."""

    dimension = 2

    def __init__(self, recipe: VectorRecipe | None = None) -> None:
        self.recipe = recipe or VectorRecipe()
        self.batches: list[list[str]] = []
        self.threads: set[str] = set()
        self.torch_threads = 0
        self.entered = threading.Event()
        self.go = threading.Event()

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        self.threads.add(threading.current_thread().name)
        self.torch_threads = torch.get_num_threads()
        self.entered.set()
        assert self.go.wait(60)
        if "poison" in texts:
            raise RuntimeError("cannot encode")
        return np.array([[len(text), 1] for text in texts], dtype=np.float32)


@pytest.fixture
def encoder() -> Held:
    return Held()


@pytest.fixture
def embedder(encoder: Held) -> Iterator[Embedder]:
    embedder = Embedder("held", encoder)
    yield embedder
    encoder.go.set()
    embedder.close()


async def started(encoder: Held) -> None:
    assert await asyncio.to_thread(encoder.entered.wait, 60)


async def test_vectors_come_back_in_the_order_of_the_texts(embedder: Embedder, encoder: Held) -> None:
    encoder.go.set()
    texts = ["x" * (n * 7 % 50) for n in range(100)]
    vectors = await embedder.embed(texts)
    assert vectors[:, 0].tolist() == [len(text) for text in texts]
    assert len(encoder.batches) == 7
    assert encoder.threads == {"embedder"}
    assert encoder.torch_threads == 1


async def test_callers_share_a_batch(embedder: Embedder, encoder: Held) -> None:
    calls = [asyncio.create_task(embedder.embed(["first"]))]
    await started(encoder)
    calls += [asyncio.create_task(embedder.embed([f"{n}"])) for n in range(8)]
    await asyncio.sleep(0)
    encoder.go.set()
    await asyncio.gather(*calls)
    assert encoder.batches == [["first"], [str(n) for n in range(8)]]


async def test_query_overtakes_rows_that_wait(embedder: Embedder, encoder: Held) -> None:
    rows = asyncio.create_task(embedder.embed(["row"] * 100))
    await started(encoder)
    query = asyncio.create_task(embedder.embed(["query"], query=True))
    await asyncio.sleep(0)
    encoder.go.set()
    await asyncio.gather(rows, query)
    assert encoder.batches[1][0] == "query"


async def test_cancelled_call_is_not_encoded_any_further(embedder: Embedder, encoder: Held) -> None:
    cancelled = asyncio.create_task(embedder.embed(["gone"] * 100))
    await started(encoder)
    cancelled.cancel()
    await asyncio.sleep(0)
    encoder.go.set()
    await embedder.embed(["after"])
    assert len(encoder.batches) == 2
    assert encoder.batches[1] == ["after"]


async def test_failure_reaches_its_caller_and_the_thread_goes_on(embedder: Embedder, encoder: Held) -> None:
    encoder.go.set()
    with pytest.raises(EmbedderError, match="cannot encode"):
        await embedder.embed(["poison"] * 50)
    assert (await embedder.embed(["fine"])).shape == (1, 2)


async def test_prompts_are_put_before_texts_and_queries() -> None:
    encoder = Held(VectorRecipe(query_prompt="Q ", text_prompt="T "))
    encoder.go.set()
    embedder = Embedder("held", encoder)
    await embedder.embed(["a"])
    await embedder.embed(["a"], query=True)
    embedder.close()
    assert encoder.batches == [["T a"], ["Q a"]]


async def test_close_ends_the_thread_and_fails_what_waits(encoder: Held) -> None:
    embedder = Embedder("held", encoder)
    call = asyncio.create_task(embedder.embed(["row"] * 100))
    await started(encoder)
    closing = asyncio.create_task(asyncio.to_thread(embedder.close))
    while not embedder._closed:
        await asyncio.sleep(0.001)
    encoder.go.set()
    await closing
    with pytest.raises(EmbedderError, match="closed"):
        await call
    with pytest.raises(EmbedderError, match="closed"):
        await embedder.embed(["late"])
    assert "embedder" not in {thread.name for thread in threading.enumerate()}


async def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    assert (await embedder.embed([])).shape == (0, 2)


async def test_folder_is_loaded_as_it_is(tmp_path: Path) -> None:
    embedder = load_embedder(str(write_encoder(tmp_path / "tiny")))
    try:
        assert embedder.dimension == DIMENSION
        assert (await embedder.embed(["red cat"])).shape == (1, DIMENSION)
    finally:
        embedder.close()


def test_folder_that_does_not_exist_is_one_clear_line() -> None:
    with pytest.raises(EmbedderError, match="there is no such folder"):
        load_embedder("./no-such-folder")


async def test_query_does_not_wait_while_rows_rest(
    embedder: Embedder, encoder: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder.go.set()
    monkeypatch.setattr(embedder, "_rows_from", time.monotonic() + 60)
    rows = asyncio.create_task(embedder.embed(["row"]))
    await asyncio.sleep(0)
    await embedder.embed(["query"], query=True)
    assert not rows.done()
    assert encoder.batches == [["query"]]
    rows.cancel()


async def test_close_does_not_wait_for_an_encoder_that_hangs(
    embedder: Embedder, encoder: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLOSE_S", 0.01)
    call = asyncio.ensure_future(embedder.embed(["text"]))
    await started(encoder)
    embedder.close()
    encoder.go.set()
    assert (await call).shape == (1, 2)
