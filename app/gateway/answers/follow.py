"""One reader of one answer, from its position to the end.

The events come from this gateway's memory, or from the gateway that owns the user's partition. If the partition moves
meanwhile, or its owner dies, the reader goes on with the next owner, at the same index.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from app.gateway.answers.archive import Archive
from app.gateway.answers.live import LiveAnswers, LiveObserver
from app.gateway.answers.sent import SentRequests
from app.gateway.answers.watch import Watch
from app.gateway.edge.errors import ApiError
from app.gateway.peers.directory import Directory
from app.gateway.peers.link import Links, PeerAwayError
from app.reader import Answer
from app.wire.error import ErrorCode
from app.wire.event import ErrorInfo, EventType, TokenEvent
from app.wire.ids import partition_for

KEEP_ALIVE_S = 5.0
"""Clients reconnect after three times this without a byte, so a gateway that hangs holds nobody longer."""
_AGAIN_S = 0.2
_OWNER_WAIT_S = 30.0
"""How long a read of an answer waits for an owner of its partition."""
_ENDS_WAIT_S = 5.0
"""The same for a list of turns, which is served without an owner then."""


class AnswerReader:
    def __init__(
        self,
        live: LiveAnswers,
        archive: Archive,
        sent: SentRequests,
        directory: Directory,
        links: Links,
        observer: LiveObserver,
        wait_s: float,
    ) -> None:
        self._live = live
        self._archive = archive
        self._sent = sent
        self._directory = directory
        self._links = links
        self._wait_s = wait_s
        self._observer = observer

    async def events(
        self, user_id: str, request_id: str, after: int = 0, *, is_known: bool = False
    ) -> AsyncGenerator[list[TokenEvent], None]:
        """The existing events, then new ones, in batches; an empty batch is a keep-alive.

        Ends with the answer's end, with `not_found`, or without an end event if the gateway stops. `is_known`: the
        request is in Kafka, so its answer is waited for without a limit.
        """
        position = after
        quiet_since = asyncio.get_running_loop().time()
        while not self._live.closing:
            async with aclosing(self._from_owner(user_id, request_id, position, is_known=is_known)) as batches:
                async for batch in batches:
                    for event in batch:
                        if event.notice is None:
                            position = event.next_index
                    if batch and batch[-1].is_end:
                        self._live.ends.add(batch[-1])
                    yield batch
                    quiet_since = asyncio.get_running_loop().time()
                    if batch and batch[-1].is_end:
                        return
            if not self._directory.is_shared:
                return
            await self._directory.changed(_AGAIN_S)
            if asyncio.get_running_loop().time() - quiet_since > KEEP_ALIVE_S:
                yield []
                quiet_since = asyncio.get_running_loop().time()

    async def answer(self, user_id: str, request_id: str) -> Answer | None:
        """The part of the answer that is written; raises `ApiError` if its owner stays away."""
        give_up_at = asyncio.get_running_loop().time() + _OWNER_WAIT_S
        while asyncio.get_running_loop().time() < give_up_at:
            address = self._directory.owner(user_id)
            if self.is_local(user_id):
                return await self.local_answer(user_id, request_id)
            if self._directory.elsewhere(user_id) and address is not None:
                with suppress(PeerAwayError, TimeoutError):
                    events = await self._links.to(address).read_answer(user_id, request_id)
                    return _answer_of(user_id, request_id, events)
            await self._directory.changed(_AGAIN_S)
        raise ApiError(ErrorCode.UNAVAILABLE, "no gateway reads the answers of this user now", retry_after_s=1)

    async def ended(self, user_id: str) -> set[str]:
        """The requests of the user whose answers any reader has seen ending lately, whichever gateway has told it."""
        own, give_up_at = self._live.ends.of(user_id), asyncio.get_running_loop().time() + _ENDS_WAIT_S
        while not self.is_local(user_id) and asyncio.get_running_loop().time() < give_up_at:
            address = self._directory.owner(user_id)
            if self._directory.elsewhere(user_id) and address is not None:
                with suppress(PeerAwayError, TimeoutError, ApiError):
                    return own | await self._links.to(address).read_ends(user_id)
            await self._directory.changed(_AGAIN_S)
        return own | self._live.ends.of(user_id)

    def local_ends(self, user_id: str) -> list[TokenEvent]:
        """Those that this gateway has read, as the owner of the user's partition."""
        ended = sorted(self._live.ends.of(user_id))
        return [TokenEvent(type=EventType.DONE, user_id=user_id, request_id=one) for one in ended]

    def is_local(self, user_id: str) -> bool:
        """Whether this gateway owns the user's partition, and reads it already."""
        return not self._directory.elsewhere(user_id) and self._live.reads(user_id)

    async def _from_owner(
        self, user_id: str, request_id: str, after: int, *, is_known: bool
    ) -> AsyncGenerator[list[TokenEvent], None]:
        """As `events`, but ends also when another gateway has to be asked."""
        sent = is_known or self._sent.conversation(user_id, request_id) is not None
        address, is_local = self._directory.owner(user_id), self.is_local(user_id)
        try:
            if is_local:
                batches = self.local(user_id, request_id, after, sent=sent)
            elif self._directory.elsewhere(user_id) and address is not None:
                batches = self._links.to(address).follow(user_id, request_id, after, sent=sent)
            else:
                return
            async with aclosing(batches):
                async for batch in batches:
                    if not is_local and any(event.index == 0 and event.tokens for event in batch):
                        self._observer.first_token(user_id, request_id)
                    yield batch
        except PeerAwayError:
            return

    async def local_answer(self, user_id: str, request_id: str) -> Answer | None:
        """The answer, of a user whose partition this gateway owns."""
        await self._complete(user_id, request_id)
        return self._live.answer(user_id, request_id)

    async def _complete(self, user_id: str, request_id: str) -> None:
        if not self._sent.is_new(user_id, request_id, self._live.reads_since(user_id)):
            await self._archive.complete(user_id, request_id)

    async def local(
        self, user_id: str, request_id: str, after: int, *, sent: bool
    ) -> AsyncGenerator[list[TokenEvent], None]:
        """The events, for a user whose partition this gateway owns. Ends early if the partition moves away.

        `sent`: the request was sent by a gateway, so its answer is waited for without a limit.
        """
        with self._live.watch(user_id, request_id) as watch:
            watch.position = after
            await self._complete(user_id, request_id)
            async with aclosing(self._from(watch, user_id, request_id, sent=sent)) as batches:
                async for batch in batches:
                    yield batch

    async def _from(
        self, watch: Watch, user_id: str, request_id: str, *, sent: bool
    ) -> AsyncGenerator[list[TokenEvent], None]:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._wait_s
        partition = partition_for(user_id, self._directory.partitions)
        while not self._live.closing and partition in self._live.partitions:
            batch = watch.next_events()
            if batch:
                yield batch
                if watch.ended:
                    return
                continue
            unknown = watch.answer is None and not sent and self._sent.conversation(user_id, request_id) is None
            if unknown and loop.time() >= give_up_at:
                yield [_not_found(user_id, request_id, watch.position, self._wait_s)]
                return
            if not await watch.changed(min(KEEP_ALIVE_S, give_up_at - loop.time()) if unknown else KEEP_ALIVE_S):
                yield []


def _answer_of(user_id: str, request_id: str, events: list[TokenEvent]) -> Answer | None:
    if not events:
        return None
    answer = Answer(user_id, request_id, events[0].conversation_id or "")
    for event in events:
        answer.append(event)
    return answer


def _not_found(user_id: str, request_id: str, index: int, waited_s: float) -> TokenEvent:
    message = f"no request with this id appeared within {waited_s:g} s"
    return TokenEvent(
        type=EventType.ERROR,
        request_id=request_id,
        user_id=user_id,
        index=index,
        error=ErrorInfo(ErrorCode.NOT_FOUND, message),
    )
