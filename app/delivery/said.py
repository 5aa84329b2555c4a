"""What was already said of unfinished requests: the tokens topic as the write-ahead log of generation.

A new owner writes its fence first and reads up to it. What stands before the fence is what readers accept as said; a
former owner's event behind it is of a lower epoch and dropped by everyone. So both agree, without talking.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from app.wire.codec import decode_token_event
from app.wire.error import WireError
from app.wire.event import EventType, TokenEvent

RequestKey = tuple[str, str]
"""(user_id, request_id): a request's identity."""


@dataclass(slots=True)
class Said:
    """The beginning of an answer, or all of it where `end` is set."""

    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    end: TokenEvent | None = None
    model_version: str | None = None
    prompt_digest: str | None = None
    first_at: int | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)


class SaidSoFar:
    """The reader rule of the tokens topic, applied to one partition from some offset on."""

    def __init__(self, epoch: int = -1) -> None:
        self.requests: dict[RequestKey, Said] = {}
        self._epoch = epoch

    def apply(self, offset: int, event: TokenEvent) -> None:
        if event.type is EventType.FENCE:
            self._epoch = max(self._epoch, offset)
            return
        if event.type is EventType.NOTICE or event.request_id is None or event.user_id is None:
            return
        if event.epoch is None or event.epoch < self._epoch:
            return
        self._epoch = event.epoch
        said = self.requests.setdefault((event.user_id, event.request_id), Said())
        if said.end is not None or event.index != len(said.tokens):
            return
        if event.is_end:
            said.end = event
        if event.index == 0:
            said.model_version = event.model_version
            said.prompt_digest = event.prompt_digest
            said.first_at = event.timestamp
        said.tokens.extend(event.tokens or ())
        said.texts.append(event.text or "")


async def read_said(
    reader: AIOKafkaConsumer, topic_partition: TopicPartition, *, start: int, former_epoch: int, fence: int
) -> dict[RequestKey, Said]:
    """Read `tokens` from offset `start` up to the own `fence`; `former_epoch` is that of the owner before.

    An answer that began before `start` was finished by then; the rest of such a one is left out, since its first
    event here is not its event of index 0.
    """
    # Where the reading starts behind the former owner's fence, what is of older epochs came too late already then.
    so_far = SaidSoFar(former_epoch if start > former_epoch else -1)
    reader.assign([topic_partition])
    earliest = (await reader.beginning_offsets([topic_partition]))[topic_partition]
    reader.seek(topic_partition, max(start, earliest))
    while await reader.position(topic_partition) < fence:
        batches = await reader.getmany(topic_partition, timeout_ms=200)
        for offset, event in _events(batches.get(topic_partition, ())):
            if offset < fence:
                so_far.apply(offset, event)
    return {key: said for key, said in so_far.requests.items() if said.tokens or said.end is not None}


def _events(records: Iterable[ConsumerRecord]) -> Iterable[tuple[int, TokenEvent]]:
    for record in records:
        try:
            yield record.offset, decode_token_event(record.value, record.headers)
        except WireError:
            continue  # not written by a worker; readers skip it too
