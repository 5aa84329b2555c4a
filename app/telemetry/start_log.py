"""What a worker tells of its start and of each take-over: few lines, however many partitions there are."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from app.delivery.partition import Partition, State

log = logging.getLogger(__name__)

_FIRST_S = 5.0
_AGAIN_S = 10.0
_TOGETHER_S = 1.0


@contextmanager
def told_while_it_lasts(what: str) -> Iterator[None]:
    """Log that this is going on, once it has taken some seconds and then again and again."""
    done, began = threading.Event(), time.monotonic()

    def tell() -> None:
        wait_s = _FIRST_S
        while not done.wait(wait_s):
            log.info("still %s, for %.0f s so far", what, time.monotonic() - began)
            wait_s = _AGAIN_S

    teller = threading.Thread(target=tell, name="start log", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


class TakeOvers:
    """Logs the partitions that were taken over together in one line, and once that the worker is ready. `about` is what
    whoever starts it wants to know then.
    """

    def __init__(self, about: Callable[[], str]) -> None:
        self._about = about
        self._new: dict[int, Partition] = {}
        self._is_ready = False
        self._late: asyncio.TimerHandle | None = None

    def assigned(self, partitions: Collection[int]) -> None:
        """A rebalance gives the worker these."""
        if not partitions:
            log.info("the group gives this worker no partitions: others have them all")
            self._ready()

    def add(self, partition: Partition, partitions: Collection[Partition]) -> None:
        """This one of the worker's partitions was taken over."""
        self._new[partition.number] = partition
        if all(one.state is State.OWNED for one in partitions):
            self._tell()
            self._ready()
        elif self._late is None:
            self._late = asyncio.get_running_loop().call_later(_TOGETHER_S, self._tell)

    def stop(self) -> None:
        if self._late is not None:
            self._late.cancel()

    def _tell(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        owned = [(number, one.ownership) for number, one in sorted(self._new.items()) if one.state is State.OWNED]
        self._new.clear()
        if owned:
            log.info(
                "taken over: %s; %s to continue, %s restored",
                ", ".join(f"{number}: epoch {ownership.epoch}" for number, ownership in owned),
                _counted(sum(ownership.to_continue for _, ownership in owned), "answer"),
                _counted(sum(ownership.restored for _, ownership in owned), "row"),
            )

    def _ready(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            log.info("ready: %s", self._about())


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
