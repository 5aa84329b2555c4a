"""The agent on `controls`: cancels requests and erases users.

An erasure takes these steps. After a crash the record is read again and the steps are repeated:

1. One transaction deletes the user's conversations, writes the mark (table `erased`), and sends the erasure to all
   other partitions of `controls`, because a wrong partitioner may have put records of the user there. From then on,
   nothing older than the mark is remembered, indexed or served.
2. The user's running answers end, and nothing of them is kept.
3. Milvus deletes the user's rows.
4. One transaction notes in the mark that Milvus is done, and commits the record's offset.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agents.finishing import dead_letter_of
from agents.history import History
from app.delivery.cancels import REMEMBERED_S, Cancels
from app.delivery.claim import Claim
from app.delivery.finish import Finish
from app.delivery.partition import Partition, State
from app.delivery.record import CONTROLS, Outgoing, Record
from app.settings import Settings
from app.wire.codec import decode_control, encode
from app.wire.control import Cancel, Erase
from app.wire.error import WireError
from app.wire.headers import FORWARDED, is_forwarded
from app.wire.validation import check_partition, validate_control
from models.generation import FinishReason
from tables import records
from tables.expiry import erasure, mark_of
from tables.records import Change, Erased, Table

_MOST_DIGITS = 15


class Controls:
    def __init__(self, settings: Settings, cancels: Cancels, history: History) -> None:
        self._settings = settings
        self._cancels = cancels
        self._history = history

    def take(self, partition: Partition, record: Record) -> None:
        try:
            control = decode_control(record.value, record.headers)
            validate_control(control, record.key)
            if isinstance(control, Cancel):
                check_partition(control, record.partition, self._settings.partitions)
        except WireError as error:
            partition.spawn(partition.finish(Finish(record, (), (dead_letter_of(record, error, self._settings),))))
            return
        match control:
            case Cancel():
                self._cancel(partition, record, control)
            case Erase():
                partition.spawn(self._erase(partition, record, control.user_id))

    def _cancel(self, partition: Partition, record: Record, cancel: Cancel) -> None:
        key = (cancel.user_id, cancel.request_id)
        own = partition.own
        now = own.clock.now()
        remembered_for = REMEMBERED_S - (now - record.timestamp) / 1000

        def settle() -> None:
            if partition.state is State.OWNED and partition.own is own:
                partition.spawn(partition.finish(Finish(record)))

        claim = own.claims.get(key)
        if claim is not None and not claim.cancelled:
            # The cancel stays uncommitted as long as the request: the next owner of the request must read the cancel
            # again.
            claim.cancelled = True
            claim.on_finish.append(settle)
            claim.stop_with(FinishReason.CANCELLED)
        elif claim is not None or own.known(key, now) or remembered_for <= 0:
            settle()
        else:
            self._cancels.remember(key, settle, min(remembered_for, REMEMBERED_S))

    async def _erase(self, partition: Partition, record: Record, user_id: str) -> None:
        own = partition.own
        at = own.clock.time_of(_forwarded_at(record) or record.timestamp)
        mark = mark_of(own.store, user_id)
        if mark is None or mark.at < at:
            may_have_rows = await self._forget(partition, record, user_id, at) or not is_forwarded(record.headers)
            mark = Erased(at, indexed=0 if may_have_rows else at, applied=own.clock.now())
        if not mark.done:
            await self._history.erase(partition, user_id, mark.at)
            mark = msgspec.structs.replace(mark, indexed=mark.at)
        newest = mark_of(partition.own.store, user_id)
        changes = () if newest is not None and newest.at > mark.at else (_marked(user_id, mark),)
        await partition.finish(Finish(record, changes))

    async def _forget(self, partition: Partition, record: Record, user_id: str, at: int) -> bool:
        """Do steps 1 and 2. Returns whether this partition had anything of the user.

        Commits that are already queued run before ours, so ours also deletes what they write.
        """
        own = partition.own
        claims = [claim for claim in own.claims.values() if claim.request.user_id == user_id]
        for claim in claims:
            _forget_claim(claim, at)
        rows = erasure(own.store, user_id)
        on_their_way = [Change(Table.CONVERSATIONS, records.key(*claim.conversation), None) for claim in claims]
        has_asked = next(own.store.scan(Table.ENDED, records.user_prefix(user_id)), None) is not None
        forwarded = () if is_forwarded(record.headers) else tuple(self._forwarded(partition, user_id, at))
        mark = Erased(at, applied=own.clock.now())
        # A request that begins before the rows are gone must not use them as history.
        own.erasing[user_id] = at
        await partition.finish(Finish(None, (*rows, *on_their_way, _marked(user_id, mark)), forwarded))
        if own.erasing.get(user_id) == at:
            del own.erasing[user_id]
        return bool(rows or claims or has_asked)

    def _forwarded(self, partition: Partition, user_id: str, at: int) -> Iterator[Outgoing]:
        value, headers = encode(Erase(user_id=user_id), self._settings.wire_format)
        headers = [*headers, (FORWARDED, f"{partition.number}@{at}".encode())]
        topic, key = self._settings.topic(CONTROLS), user_id.encode()
        for number in range(self._settings.partitions):
            if number != partition.number:
                yield Outgoing(topic, key, value, headers, partition=number)


def _forget_claim(claim: Claim, at: int) -> None:
    claim.forget_history = True
    if claim.at <= at:
        claim.forget = True
        claim.stop_with(FinishReason.CANCELLED)
    elif claim.recalled:
        claim.forget = True  # asked after the erasure, but it may quote what was erased


def _marked(user_id: str, mark: Erased) -> Change:
    return Change(Table.ERASED, records.key(user_id), records.encode(mark))


def _forwarded_at(record: Record) -> int | None:
    """The time of a forwarded erasure; the forwarded record's own timestamp is a little later."""
    for name, value in record.headers:
        if name == FORWARDED and value is not None:
            _, _, at = value.partition(b"@")
            return int(at) if at.isdigit() and len(at) <= _MOST_DIGITS else None
    return None
