"""The LoRA adapters in memory: loaded when a request names one, evicted when memory is short.

A separate thread reads the files, so no answer waits for a disk. A sequence enters the scheduler once its adapter is in
memory, and holds it until it ends. The least recently used adapter that no sequence holds is evicted for the next one.
Sequences that wait for memory form one queue, first come, first served, so none starves.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from torch import Tensor

from models.compute.lora import Lora
from models.engine.sequence import SequenceState
from models.files.adapters import Adapter, AdapterError, AdapterFiles, load_adapter


@dataclass(frozen=True, slots=True)
class Fetched:
    """An adapter was read, or the reason why not."""

    name: str
    result: Adapter | AdapterError


class Adapters:
    """All methods but `fetch` belong to the engine's thread. `fetched` is called from the thread that reads."""

    def __init__(
        self,
        known: Mapping[str, AdapterFiles],
        lora: Lora,
        like: Tensor,
        limit_bytes: int,
        fetched: Callable[[Fetched], None],
    ) -> None:
        self._known = known
        self._lora = lora
        self._like = like
        self._limit = limit_bytes
        self._fetched = fetched
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="adapters")
        self._waiting: list[SequenceState] = []
        self._used: OrderedDict[str, int] = OrderedDict()  # bytes of each adapter in memory, least recently used first
        self._holders: defaultdict[str, set[SequenceState]] = defaultdict(set)
        self._ready: Fetched | None = None  # read, and not in memory's final place yet
        self._reading: str | None = None

    @property
    def waited_for(self) -> bool:
        return bool(self._waiting)

    @property
    def can_go_on(self) -> bool:
        """Whether a sequence waits and no file is being read: once nothing holds memory, `admitted` gets it further."""
        return bool(self._waiting) and self._reading is None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._known)

    def faults(self) -> list[str]:
        """Read every adapter, and say in a line each why it cannot be used."""
        faults: list[str] = []
        for files in self._known.values():
            try:
                load_adapter(files, self._lora.layers, self._like)
            except AdapterError as error:
                faults.append(str(error))
        return faults

    def knows(self, name: str) -> bool:
        return name in self._known

    def ask(self, sequence: SequenceState) -> None:
        self._waiting.append(sequence)

    def leave(self, sequence: SequenceState) -> None:
        """The sequence has ended."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        else:
            self._holders[sequence.job.adapter].discard(sequence)

    def install(self, fetched: Fetched) -> None:
        self._reading, self._ready = None, fetched

    def admitted(self) -> list[tuple[SequenceState, AdapterError | None]]:
        """Sequences that can continue, or must end with an error; requests the adapter of the first that cannot."""
        admitted: list[tuple[SequenceState, AdapterError | None]] = []
        while self._waiting:
            sequence = self._waiting[0]
            error = None
            if sequence.job.adapter not in self._used:
                error = self._install_or_request(sequence.job.adapter)
                if error is None and sequence.job.adapter not in self._used:
                    break
            del self._waiting[0]
            if error is None:
                self._holders[sequence.job.adapter].add(sequence)
                self._used.move_to_end(sequence.job.adapter)
            admitted.append((sequence, error))
        return admitted

    def stop(self) -> None:
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _install_or_request(self, name: str) -> AdapterError | None:
        """Install an adapter if it has been read and there is room; request it if it has not been read."""
        ready = self._ready
        if ready is None or ready.name != name:
            if self._reading is None:
                self._ready, self._reading = None, name
                self._reader.submit(self._fetch, self._known[name])
            return None
        if isinstance(ready.result, AdapterError):
            self._ready = None
            return ready.result
        size = sum(delta.nbytes for delta in ready.result.values())
        if size > self._limit:
            self._ready = None
            return AdapterError(
                f"adapter {name}: it has {size >> 20} MiB, more than the limit of all adapters together (adapters_gb)"
            )
        if self._make_room(size):
            self._ready = None
            try:
                self._lora.hold(name, ready.result)
            except Exception as error:  # noqa: BLE001 - for example no memory; others are not concerned
                self._lora.drop(name)
                return AdapterError(f"adapter {name}: it cannot be used ({type(error).__name__})")
            self._used[name] = size
        return None

    def _make_room(self, size: int) -> bool:
        idle = [name for name in self._used if not self._holders[name]]
        while idle and sum(self._used.values()) + size > self._limit:
            name = idle.pop(0)
            del self._used[name], self._holders[name]
            self._lora.drop(name)
        return sum(self._used.values()) + size <= self._limit

    def _fetch(self, files: AdapterFiles) -> None:
        try:
            self._fetched(Fetched(files.name, load_adapter(files, self._lora.layers, self._like)))
        except AdapterError as error:
            self._fetched(Fetched(files.name, error))
        except Exception as error:  # noqa: BLE001  the waiting sequences get the error
            self._fetched(
                Fetched(files.name, AdapterError(f"adapter {files.name}: it cannot be used ({type(error).__name__})"))
            )
