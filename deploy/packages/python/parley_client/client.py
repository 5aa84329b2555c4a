"""The client for programs with an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Literal, Self

from parley_client.errors import AnswerFailedError
from parley_client.fields import DEFAULT_CONVERSATION, Fork, WhileBusy, check_fields
from parley_client.http import SILENT_S, HttpTransport
from parley_client.reader import Answer, Event, ReaderRule, Update, next_index
from parley_client.transport import Record, Records, Transport, new_request_id
from parley_client.versions import fork_of, replaced_with, version_id, versions_of


class Following:
    """An answer as it comes: iterate over its updates once, or `await` it whole by `result`.

    An answer that ends with an error raises `AnswerFailedError` after its last update. Who leaves the iteration leaves
    the answer to go on; `cancel` ends it.
    """

    def __init__(self, request_id: str, records: Records, after: int = 0) -> None:
        self.request_id = request_id
        self.answer: Answer[Event] = Answer("", request_id)
        self._records = records
        self._after = after
        self._rule: ReaderRule[Event] = ReaderRule()

    async def __aiter__(self) -> AsyncIterator[Update[Event]]:
        async with aclosing(self._records) as records:
            async for partition, offset, event in records:
                update = self._rule.read(partition, offset, event)
                if update is None:
                    continue
                self.answer = update.answer
                if not self._is_known(update.event):
                    yield update
                if self.answer.end is not None:
                    break
        end = self.answer.end
        if end is not None and end["type"] == "error":
            raise AnswerFailedError(end["error"]["code"], end["error"]["message"])

    def _is_known(self, event: Event) -> bool:
        """Whether it is in front of the index from which the caller wants the answer."""
        return event["type"] == "token" and next_index(event) <= self._after

    async def result(self) -> Answer[Event]:
        """The whole answer."""
        async for _ in self:
            pass
        return self.answer

    async def leave(self) -> None:
        """Read no more of it."""
        await self._records.aclose()


class AsyncParley:
    """Asks for one user.

    `patience_s`: how long to try again while nothing is heard of the gateway. `silent_s`: a stream without a byte
    for so long goes on over a new connection.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        user: str | None = None,
        patience_s: float = 60.0,
        silent_s: float = SILENT_S,
        transport: Transport | None = None,
    ) -> None:
        self._transport = transport or HttpTransport(url, key, user, patience_s, silent_s)

    @classmethod
    def kafka(cls, brokers: str, *, user: str, prefix: str = "", **options: Any) -> Self:
        """Over Kafka; `prefix` is that of the topics, and `options` are aiokafka's."""
        from parley_client.kafka import KafkaTransport  # noqa: PLC0415 - aiokafka is in the extra `kafka`

        return cls(transport=KafkaTransport(brokers, user, prefix, options))

    async def __aenter__(self) -> Self:
        await self._transport.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.stop()

    async def ask(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[dict[str, Any]] | None = None,
        conversation: str | None = None,
        request_id: str | None = None,
        while_busy: WhileBusy | None = None,
        from_: Fork | None = None,
        **fields: Any,
    ) -> Following:
        """Send a request; its answer is generated whether or not anybody follows it.

        `prompt` continues the conversation that Parley keeps, `messages` are the whole context. `while_busy` says what
        becomes of earlier requests of the conversation that are not over: `interrupt` ends them, `rollback` forgets
        them, too. `from_` begins the `conversation` as a copy of another one, at a word of an answer, too. `fields` are
        the others of a record of `requests`, as `max_tokens`. Raises `RefusedError` or `UnreachableError`, and
        `TypeError` for a field that a request does not know.
        """
        check_fields(fields)
        given = {
            "prompt": prompt,
            "messages": messages,
            "conversation_id": conversation,
            "while_busy": while_busy,
            "from": from_,
            **fields,
        }
        request_id = request_id or new_request_id()
        request = {"request_id": request_id, **{name: value for name, value in given.items() if value is not None}}
        following = Following(request_id, await self._transport.ask(request))
        following.answer.conversation_id = conversation or DEFAULT_CONVERSATION
        return following

    async def fork(
        self, request_id: str, prompt: str, *, conversation: str = DEFAULT_CONVERSATION, **fields: Any
    ) -> Following:
        """Ask behind a request, in a conversation that begins as a copy up to it and is `answer.conversation_id`."""
        begins: Fork = {"conversation_id": conversation, "request_id": request_id}
        return await self.ask(prompt, conversation=fork_of(conversation), from_=begins, **fields)

    async def edit(
        self, request_id: str, prompt: str, *, conversation: str = DEFAULT_CONVERSATION, **fields: Any
    ) -> Following:
        """Another question in the place of an earlier one; the conversation goes on in `answer.conversation_id`.

        What followed is replaced, too: searches find it no more. Over Kafka, `replaces` names it (the request first).
        """
        return await self._ask_instead("edit", request_id, 0, conversation, {"prompt": prompt, **fields})

    async def regenerate(
        self, request_id: str, *, conversation: str = DEFAULT_CONVERSATION, index: int = 0, **fields: Any
    ) -> Following:
        """Another answer, as `edit`; one that begins with so many tokens of the earlier one."""
        return await self._ask_instead("again", request_id, index, conversation, fields)

    async def _ask_instead(
        self, kind: Literal["again", "edit"], of: str, index: int, conversation: str, fields: dict[str, Any]
    ) -> Following:
        replaces = fields.pop("replaces", None) or await replaced_with(self._transport, conversation, of)
        request_id = fields.pop("request_id", None) or version_id(kind, of)
        begins: Fork = {"conversation_id": conversation, "request_id": of, "index": index}
        to = fork_of(conversation)
        return await self.ask(conversation=to, request_id=request_id, from_=begins, replaces=replaces, **fields)

    async def versions(self, request_id: str, *, conversation: str = DEFAULT_CONVERSATION) -> list[Record]:
        """The turns in the place of this one, oldest first, each with its `conversation_id`; HTTP only."""
        return await versions_of(self._transport, conversation, request_id)

    def follow(self, request_id: str, *, after: int = 0) -> Following:
        """The answer to an earlier request, from the index `after` on: what another process has read already."""
        return Following(request_id, self._transport.follow(request_id, after), after)

    async def cancel(self, request_id: str) -> None:
        """End the answer; the text so far is kept."""
        await self._transport.cancel(request_id)

    async def search(self, query: str, *, limit: int = 10, **filters: Any) -> list[dict[str, Any]]:
        """The user's turns that fit the query by meaning or by words, the best first."""
        return await self._transport.search(query, limit=limit, **filters)
