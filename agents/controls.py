"""The agent on `controls`: requests that are to end, and users who are to be forgotten."""

from __future__ import annotations

import asyncio
import time

from agents.finishing import dead_letter_of
from app.delivery.cancels import REMEMBERED_S, Cancels
from app.delivery.finish import Finish
from app.delivery.partition import Partition, State
from app.delivery.record import Record
from app.search.absent import TakesTurns
from app.settings import Settings
from app.wire.codec import decode_control
from app.wire.control import Cancel, Erase
from app.wire.error import WireError
from app.wire.validation import validate_control
from models.generation import FinishReason
from tables import records
from tables.expiry import erasure
from tables.records import Change, Erased, Table


class Controls:
    def __init__(self, settings: Settings, cancels: Cancels, writer: TakesTurns) -> None:
        self._settings = settings
        self._cancels = cancels
        self._writer = writer

    def take(self, partition: Partition, record: Record) -> None:
        try:
            control = decode_control(record.value, record.headers)
            validate_control(control, record.key)
        except WireError as error:
            partition.spawn(partition.finish(Finish(record, (), (dead_letter_of(record, error, self._settings),))))
            return
        match control:
            case Cancel():
                self._cancel(partition, record, control)
            case Erase():
                partition.spawn(self._erase(partition, record, control))

    def _cancel(self, partition: Partition, record: Record, cancel: Cancel) -> None:
        key = (cancel.user_id, cancel.request_id)
        own = partition.own
        remembered_for = REMEMBERED_S - (time.time() - record.timestamp / 1000)

        def settle() -> None:
            if partition.state is State.OWNED and partition.own is own:
                partition.spawn(partition.finish(Finish(record)))

        if claim := own.claims.get(key):
            # The cancel stays open as long as the request does: whoever resumes the one reads the other again.
            claim.on_finish.append(settle)
            claim.stop_with(FinishReason.CANCELLED)
        elif own.known(key) or remembered_for <= 0:
            settle()
        else:
            self._cancels.remember(key, settle, min(remembered_for, REMEMBERED_S))

    async def _erase(self, partition: Partition, record: Record, erase: Erase) -> None:
        """Rows first, with a mark that keeps replays from bringing anything back; then what Milvus has.

        Requests older than the erasure end as cancelled and leave no text. Finishes that are already on their way are
        committed before ours, so ours deletes what they write.
        """
        own = partition.own
        at = min(record.timestamp, time.time_ns() // 1_000_000)
        marker = records.key(erase.user_id)
        raw = own.store.get(Table.ERASED, marker)
        if raw is None or records.decode(raw, Erased).at < at:
            claims = [claim for claim in own.claims.values() if claim.request.user_id == erase.user_id]
            for claim in claims:
                claim.forget_history = True
                if claim.record.timestamp <= at:
                    claim.forget = True
                    claim.stop_with(FinishReason.CANCELLED)
            on_their_way = [Change(Table.CONVERSATIONS, records.key(*claim.conversation), None) for claim in claims]
            mark = Change(Table.ERASED, marker, records.encode(Erased(at)))
            # What begins before the rows are gone must not build on them.
            own.erasing[erase.user_id] = at
            await partition.finish(Finish(None, (*erasure(own.store, erase.user_id), *on_their_way, mark)))
            if own.erasing.get(erase.user_id) == at:
                del own.erasing[erase.user_id]
        deleted = asyncio.Event()
        self._writer.erase(erase.user_id, at, deleted.set, partition.number)
        await deleted.wait()
        await partition.finish(Finish(record))
