"""The agent on `turns`: each turn becomes rows in Milvus, whenever Milvus is there.

Nothing waits for it: the writer takes turns at once, and its backlog stops this topic's flow alone.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial

from agents.finishing import dead_letter_of
from app.delivery.finish import Finish, LostError
from app.delivery.observer import UNOBSERVED, Observer
from app.delivery.ownership import Ownership
from app.delivery.partition import Partition, State
from app.delivery.record import Record
from app.search.absent import TakesTurns
from app.settings import Settings
from app.wire.codec import decode_turn
from app.wire.codes import ErrorCode
from app.wire.error import WireError
from app.wire.turn import Turn
from tables import records
from tables.records import Erased, Table


class History:
    def __init__(self, settings: Settings, writer: TakesTurns, observer: Observer = UNOBSERVED) -> None:
        self._settings = settings
        self._writer = writer
        self._observer = observer
        self._sources: dict[int, tuple[Partition, Record]] = {}

    def take(self, partition: Partition, record: Record) -> None:
        try:
            turn = decode_turn(record.value, record.headers)
        except WireError as error:
            partition.spawn(partition.finish(Finish(record, (), (dead_letter_of(record, error, self._settings),))))
            return
        if self._forgotten(partition, turn):
            partition.spawn(partition.finish(Finish(record)))
            return
        self._sources[id(turn)] = (partition, record)
        self._writer.submit(turn, partial(self._done, partition.own, turn, time.time_ns()), partition.number)

    def release(self, partition: int) -> None:
        """Forget the turns of a partition whose ownership has ended: its next owner erases before it writes."""
        self._sources = {turn: source for turn, source in self._sources.items() if source[0].number != partition}
        self._writer.revoke({partition})

    async def reject(self, turn: Turn, reason: str) -> None:
        """A row of the turn can never be in Milvus."""
        if id(turn) not in self._sources:
            return
        partition, record = self._sources[id(turn)]
        error = WireError(ErrorCode.INVALID_REQUEST, reason)
        # Where the partition is lost, its next owner has the turn again.
        with suppress(LostError):
            await partition.finish(Finish(None, (), (dead_letter_of(record, error, self._settings),)))

    def _done(self, own: Ownership, turn: Turn, taken_ns: int) -> None:
        source = self._sources.pop(id(turn), None)
        if source is None:
            return
        partition, record = source
        self._observer.indexed(record, turn, taken_ns)
        # After a loss of the partition the turn is indexed again by whoever has it then.
        if partition.state is State.OWNED and partition.own is own:
            partition.spawn(partition.finish(Finish(record)))

    def _forgotten(self, partition: Partition, turn: Turn) -> bool:
        raw = partition.own.store.get(Table.ERASED, records.key(turn.user_id))
        return not turn.outlives(0 if raw is None else records.decode(raw, Erased).at)
