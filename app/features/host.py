"""What a worker gives its features."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from app.policy.file import Policy
from app.prices import PriceList
from app.search.vector_store import OpenVectors
from app.settings import Settings
from models.embedder import Embedder
from models.served.registry import ModelRegistry


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """`embedder` is None in a worker that indexes nothing. `clock` is monotonic, in seconds; `now` is the
    broker's clock in Unix milliseconds; `owned` are the partitions of this worker.
    """

    settings: Settings
    policy: Policy
    models: ModelRegistry
    prices: PriceList
    embedder: Embedder | None
    open_vectors: OpenVectors
    clock: Callable[[], float]
    now: Callable[[], int]
    owned: Callable[[], Collection[int]]
