"""The asyncio interface of an encoder with a thread of its own.

Callers on any event loop submit texts and await their vectors. The thread takes a few texts at a time, across callers:
queries before texts to be indexed, and texts of similar length of one call together, because padding costs as much as
words. A search therefore never waits for more than one small batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from models.embedder.recipe import EmbedderError
from models.embedder.spare_time import SpareTime, idle_s

if TYPE_CHECKING:
    from models.embedder.encoder import Vectors
    from models.embedder.recipe import VectorRecipe

_BATCH = 16
_LOWEST = 19
_CLOSE_S = 5.0


class Embeds(Protocol):
    """What makes vectors of texts."""

    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Unit vectors, one a row."""


class Encodes(Protocol):
    dimension: int
    recipe: VectorRecipe

    def encode(self, texts: Sequence[str]) -> Vectors: ...

    def count_tokens(self, texts: Sequence[str]) -> int: ...


@dataclass(slots=True, eq=False)
class _Call:
    texts: list[str]
    vectors: Vectors
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Vectors]
    order: list[int] = field(init=False)  # indexes still to be encoded, longest text first

    def __post_init__(self) -> None:
        self.order = sorted(range(len(self.texts)), key=lambda index: len(self.texts[index]))


class Embedder:
    """Texts to unit vectors; `close` ends its thread.

    In the `background` its thread has the lowest processor priority and rests after texts to be indexed
    (spare_time.py), for a process whose other threads serve users. Both on Linux only.
    """

    def __init__(self, name: str, encoder: Encodes, *, background: bool = False) -> None:
        self.name = name
        self._encoder = encoder
        self._background = background and sys.platform == "linux"
        self._rows_from = 0.0  # monotonic seconds: when rows are encoded again
        self._queries: deque[_Call] = deque()
        self._rows: deque[_Call] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="embedder", daemon=True)
        self._thread.start()

    @property
    def dimension(self) -> int:
        return self._encoder.dimension

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """A float32 array of `len(texts)` rows. `query` says that the texts are queries, not documents."""
        import numpy as np  # an importer of this module may never embed

        vectors: Vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        if not texts:
            return vectors
        recipe = self._encoder.recipe
        prompt = recipe.query_prompt if query else recipe.text_prompt
        loop = asyncio.get_running_loop()
        call = _Call([prompt + text for text in texts], vectors, loop, loop.create_future())
        with self._changed:
            if self._closed:
                raise EmbedderError(f"embedder '{self.name}' is closed")
            (self._queries if query else self._rows).append(call)
            self._changed.notify()
        return await call.future

    def count_tokens(self, texts: Sequence[str]) -> int:
        """How many tokens the encoder reads for these texts. Takes as long as tokenizing them: call it in a thread."""
        return self._encoder.count_tokens(texts)

    def close(self) -> None:
        """End the thread after the current batch; calls that still wait fail. Idempotent.

        In the background of a busy machine that batch may take minutes: after some seconds it is left to the end of the
        process.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        import torch

        torch.set_num_threads(1)  # of this thread only; the engine needs the cores
        spare = None
        if self._background:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
            spare = SpareTime(idle_s, os.cpu_count() or 1)
        while batch := self._next_batch():
            try:
                vectors = self._encoder.encode([call.texts[index] for call, index in batch])
            except Exception as error:  # noqa: BLE001  (the callers get the error)
                self._fail({call for call, _ in batch}, EmbedderError(f"embedder '{self.name}' failed: {error}"))
                continue
            for (call, index), vector in zip(batch, vectors, strict=True):
                call.vectors[index] = vector
            for call in {call for call, _ in batch if not call.order}:
                self._resolve(call, None)
            if spare is not None:
                self._rows_from = time.monotonic() + spare.rest_s()
        self._fail({*self._queries, *self._rows}, EmbedderError(f"embedder '{self.name}' was closed"))

    def _next_batch(self) -> list[tuple[_Call, int]]:
        """Up to `_BATCH` texts, queries first; empty when closed."""
        with self._changed:
            while not self._closed:
                if batch := [*self._pick(self._queries, _BATCH)]:
                    return batch
                rest = self._rows_from - time.monotonic()
                if rest <= 0 and (batch := [*self._pick(self._rows, _BATCH)]):
                    return batch
                self._changed.wait(rest if rest > 0 and self._rows else None)
        return []

    @staticmethod
    def _pick(calls: deque[_Call], most: int) -> Iterator[tuple[_Call, int]]:
        while calls and most:
            call = calls[0]
            if call.future.cancelled():
                call.order.clear()
            next_texts = [call.order.pop() for _ in range(min(most, len(call.order)))]
            most -= len(next_texts)
            yield from ((call, index) for index in next_texts)
            if not call.order:
                calls.popleft()

    def _fail(self, calls: set[_Call], error: EmbedderError) -> None:
        with self._changed:
            for waiting in (self._queries, self._rows):
                for call in calls.intersection(waiting):
                    waiting.remove(call)
        for call in calls:
            self._resolve(call, error)

    @staticmethod
    def _resolve(call: _Call, error: EmbedderError | None) -> None:
        def resolve() -> None:
            if call.future.done():
                return
            if error is None:
                call.future.set_result(call.vectors)
            else:
                call.future.set_exception(error)

        with contextlib.suppress(RuntimeError):  # the caller's loop is closed
            call.loop.call_soon_threadsafe(resolve)


def load_embedder(name: str, *, background: bool = False) -> Embedder:
    """`minilm`, a folder, or a Hugging Face name. Takes seconds: call it in a thread. Raises `EmbedderError`."""
    if name.startswith((".", "/", "~")) and not Path(name).expanduser().is_dir():
        raise EmbedderError(f"embedder '{name}': there is no such folder")
    try:
        from models.embedder.loading import MINILM, find_minilm, load_encoder
    except ImportError as error:
        raise EmbedderError(f"embedder '{name}': {error}; install parley again") from None
    checkpoint = find_minilm() if name == MINILM else Path(name).expanduser()
    return Embedder(name, load_encoder(name, str(checkpoint), script=background), background=background)
