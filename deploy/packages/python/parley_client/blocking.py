"""The client for programs without an event loop: the other one, run in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from parley_client.client import AsyncParley, Following
from parley_client.fields import DEFAULT_CONVERSATION, Fork, WhileBusy
from parley_client.http import SILENT_S
from parley_client.reader import Answer, Event, Update

T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own, which ends with the process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="parley-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(updates: AsyncIterator[Update[Event]]) -> Update[Event] | None:
    return await anext(updates, None)


class BlockingAnswer:
    """An answer as it comes; see `Following`."""

    def __init__(self, loop: _Loop, following: Following) -> None:
        self._loop = loop
        self._following = following

    @property
    def request_id(self) -> str:
        return self._following.request_id

    @property
    def answer(self) -> Answer[Event]:
        return self._following.answer

    def __iter__(self) -> Iterator[Update[Event]]:
        updates = aiter(self._following)
        try:
            while (update := self._loop.run(_next(updates))) is not None:
                yield update
        finally:
            self._loop.run(self._following.leave())

    def result(self) -> Answer[Event]:
        return self._loop.run(self._following.result())


class Parley:
    """As `AsyncParley`, for programs without an event loop."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        user: str | None = None,
        patience_s: float = 60.0,
        silent_s: float = SILENT_S,
    ) -> None:
        self._loop = _Loop()
        self._parley = self._made(
            lambda: AsyncParley(url, key=key, user=user, patience_s=patience_s, silent_s=silent_s)
        )

    @classmethod
    def kafka(cls, brokers: str, *, user: str, prefix: str = "", **options: Any) -> Self:
        """Over Kafka; `prefix` is that of the topics, and `options` are aiokafka's."""
        parley = cls()
        parley._parley = parley._made(lambda: AsyncParley.kafka(brokers, user=user, prefix=prefix, **options))
        return parley

    def _made(self, make: Callable[[], AsyncParley]) -> AsyncParley:
        """Made in the loop: clients belong to the one in which they begin."""

        async def made() -> AsyncParley:
            return make()

        return self._loop.run(made())

    def __enter__(self) -> Self:
        self._loop.run(self._parley.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._loop.run(self._parley.__aexit__(kind, error, trace))
        finally:
            self._loop.stop()

    def ask(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[dict[str, Any]] | None = None,
        conversation: str | None = None,
        request_id: str | None = None,
        while_busy: WhileBusy | None = None,
        from_: Fork | None = None,
        **fields: Any,
    ) -> BlockingAnswer:
        asked = self._parley.ask(
            prompt,
            messages=messages,
            conversation=conversation,
            request_id=request_id,
            while_busy=while_busy,
            from_=from_,
            **fields,
        )
        return self._asked(asked)

    def fork(
        self, request_id: str, prompt: str, *, conversation: str = DEFAULT_CONVERSATION, **fields: Any
    ) -> BlockingAnswer:
        return self._asked(self._parley.fork(request_id, prompt, conversation=conversation, **fields))

    def edit(
        self, request_id: str, prompt: str, *, conversation: str = DEFAULT_CONVERSATION, **fields: Any
    ) -> BlockingAnswer:
        return self._asked(self._parley.edit(request_id, prompt, conversation=conversation, **fields))

    def regenerate(
        self, request_id: str, *, conversation: str = DEFAULT_CONVERSATION, index: int = 0, **fields: Any
    ) -> BlockingAnswer:
        return self._asked(self._parley.regenerate(request_id, conversation=conversation, index=index, **fields))

    def versions(self, request_id: str, *, conversation: str = DEFAULT_CONVERSATION) -> list[dict[str, Any]]:
        return self._loop.run(self._parley.versions(request_id, conversation=conversation))

    def _asked(self, asked: Coroutine[Any, Any, Following]) -> BlockingAnswer:
        return BlockingAnswer(self._loop, self._loop.run(asked))

    def follow(self, request_id: str, *, after: int = 0) -> BlockingAnswer:
        return BlockingAnswer(self._loop, self._parley.follow(request_id, after=after))

    def cancel(self, request_id: str) -> None:
        self._loop.run(self._parley.cancel(request_id))

    def search(self, query: str, *, limit: int = 10, **filters: Any) -> list[dict[str, Any]]:
        return self._loop.run(self._parley.search(query, limit=limit, **filters))
