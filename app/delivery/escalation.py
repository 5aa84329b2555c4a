"""Whose fault an error is, and so what it ends.

1. An error about one request or record ends that request or record, whatever raised it: decoding, deciding, rendering,
   generating, committing. It is contained (app/answering/containment.py, dead_letters.py); nothing else notices.
2. An error of the broker, or a corrupt store, ends the ownership of the partition, which is taken over again
   (partition.py). What writes to the broker reports it there, and raises `LostError` to its caller, so that a request
   is never blamed for it.
3. Only the errors of this list end the worker: after them, nothing that this process says can be trusted.
"""

from __future__ import annotations

from app.delivery.commits.commit import LostError
from models.interface.token_stream import EngineDied
from tables.store_errors import CorruptStoreError, StoreLockedError, StoreUnusableError

WORKER_ERRORS: tuple[type[Exception], ...] = (
    EngineDied,  # the thread that computes answers has died or hangs
    StoreLockedError,  # another process uses the data directory
    StoreUnusableError,  # files, space or rights are lacking, or the disk loses what is written
)

PARTITION_ERRORS: tuple[type[Exception], ...] = (LostError,)
"""The ownership has ended, or is about to: what it was doing is done again under the next one."""

ESCALATING: tuple[type[Exception], ...] = (*WORKER_ERRORS, *PARTITION_ERRORS, CorruptStoreError)
"""What may leave the processing of one request or record."""
