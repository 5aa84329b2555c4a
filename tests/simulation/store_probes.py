"""What a store is asked beside the storms: rows that are written, replaced, erased, expired and searched through the
stores of two workers, each time as the protocol says.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parley_client.plugins import Found, Plugin, Search, StoreOptions

from app.plugins.running import PluginFailedError, PluginRoom
from tests.simulation.promises import AT_A_TIME, CONTAINED, ERASED, FOUND, GONE, IN_TIME, Broken

_BOUND_S, _STEPS = 10.0, 100
_WORDS = ("where is my order 4711?", "", "a" * 10_000, "\0", 'it\'s 100 % "quoted" \u202e', "💥" * 500)
Row = Mapping[str, Any]


def probe_store(plugin: Plugin, _settings: Mapping[str, Any]) -> Iterator[Broken]:
    with TemporaryDirectory() as folder:
        probe = _Probe(plugin, StoreOptions("turns", str(Path(folder) / "store"), "", "probe", 8))
        try:
            yield from probe.steps()
        except PluginFailedError as error:
            yield Broken(IN_TIME if any(one.calls.late for one in probe.rooms) else CONTAINED, str(error))
        finally:
            probe.close()


class _Probe:
    """`rows` are those that have to be there."""

    def __init__(self, plugin: Plugin, options: StoreOptions) -> None:
        self.rooms = [PluginRoom(plugin, _BOUND_S) for _ in range(2)]
        self._stores = [plugin.made(options) for _ in self.rooms]
        self._chance = random.Random("stores")
        self._ids: set[str] = set()
        self.rows: dict[str, Row] = {}

    def steps(self) -> Iterator[Broken]:
        for number in range(2):
            self._call("open", number=number)
        self._call("fetch", [])
        kinds = {self._write: AT_A_TIME, self._erase: ERASED, self._expire: GONE}
        for at in range(_STEPS):
            act = self._chance.choices(tuple(kinds), (8, 2, 1))[0]
            told = act(at)
            read = {row["turn_id"]: row for row in self._call("fetch", [*sorted(self._ids), "nobody/r:user"])}
            if more := sorted({*read} - {*self.rows}):
                yield Broken(kinds[act], f"{more[0]} is there after {told}")
            elif missing := sorted({*self.rows} - {*read}):
                yield Broken(AT_A_TIME, f"{missing[0]} is missing after {told}")
            elif changed := [key for key, row in self.rows.items() if not _same(row, read[key])]:
                yield Broken(AT_A_TIME, f"{changed[0]} has other fields than were written, after {told}")
            self.rows = read
            yield from self._searched(at)

    def close(self) -> None:
        for room, store in zip(self.rooms, self._stores, strict=True):
            asyncio.run(room.close(store.close))

    def _call(self, name: str, *arguments: Any, number: int | None = None) -> Any:
        """By the store of one worker or the other."""
        number = self._chance.randrange(2) if number is None else number
        method: Callable[..., Any] = getattr(self._stores[number], name)
        return asyncio.run(self.rooms[number].call(partial(method, *arguments)))

    def _write(self, at: int) -> str:
        """Rows of now, or late ones of a former owner; some are written again with other words."""
        rows = [self._row(at - self._chance.choice((0, 0, 0, 40))) for _ in range(self._chance.randint(1, 3))]
        rows = [*{row["turn_id"]: row for row in rows}.values()]
        self._call("upsert", rows)
        self._ids |= {row["turn_id"] for row in rows}
        self.rows |= {row["turn_id"]: row for row in rows}
        return "an upsert"

    def _erase(self, at: int) -> str:
        user, conversation = self._user(), self._chance.choice((None, "c1", "c2"))
        until = max(0, at - self._chance.randint(0, 20))
        self._call("erase", user, conversation, until)
        late = {**self._row(until), "user_id": user, "turn_id": f"{user}/late:user", "asked_at": until}
        late |= {} if conversation is None else {"conversation_id": conversation}
        self._ids.add(late["turn_id"])
        self._call("upsert", [late])
        self._call("erase", user, conversation, until)
        gone = {
            key
            for key, row in self.rows.items()
            if row["user_id"] == user and conversation in {None, row["conversation_id"]} and row["asked_at"] <= until
        }
        self.rows = {key: row for key, row in self.rows.items() if key not in gone}
        return f"erase({user!r}, {conversation!r}, {until}), a late upsert and the same erase"

    def _expire(self, at: int) -> str:
        before = max(0, at - 30)
        self._call("expire", before)
        self.rows = {key: row for key, row in self.rows.items() if row["created_at"] >= before}
        return f"expire({before})"

    def _searched(self, at: int) -> Iterator[Broken]:
        chance = self._chance
        search = Search(
            user_id=self._user(),
            text=chance.choice(_WORDS),
            vector=self._vector(),
            limit=chance.randint(1, 4),
            conversation_id=chance.choice((None, None, "c1")),
            role=chance.choice((None, None, "user")),
            since=chance.choice((None, at - 20)),
            until=chance.choice((None, at - 5)),
            erased_at=chance.choice((0, at - 15)),
            erased=chance.choice((None, {"c2": at - 10})),
        )
        found: Sequence[Found] = self._call("search", search)
        wanted = sorted(
            ((_cosine(row["embedding"], search.vector), key) for key, row in self.rows.items() if search.takes(row)),
            reverse=True,
        )[: search.limit]
        if foreign := [one.row for one in found if not search.takes(one.row)]:
            erased = foreign[0]["user_id"] != search.user_id or foreign[0]["asked_at"] <= search.erased_at
            sign = f"a search finds {foreign[0]['turn_id']}, which `Search.takes` does not take"
            yield Broken(ERASED if erased else FOUND, sign)
        elif [one.row["turn_id"] for one in found] != [key for _, key in wanted]:
            told = [one.row["turn_id"] for one in found]
            yield Broken(FOUND, f"a search gives {told}, and {[key for _, key in wanted]} are the nearest")
        elif any(abs(one.similarity - cosine) > 1e-3 for one, (cosine, _) in zip(found, wanted, strict=True)):
            yield Broken(FOUND, "a similarity is not the cosine of the vectors")

    def _row(self, asked_at: int) -> Row:
        asked_at = max(1, asked_at)
        user, role = self._user(), self._chance.choice(("user", "assistant"))
        return {
            "turn_id": f"{user}/r{self._chance.randint(0, 30)}:{role}",
            "user_id": user,
            "conversation_id": self._chance.choice(("c1", "c2")),
            "role": role,
            "text": self._chance.choice(_WORDS),
            "tenant": "",
            "model_version": "probe@1",
            "created_at": asked_at + self._chance.randint(0, 15),
            "asked_at": asked_at,
            "embedding": self._vector(),
        }

    def _user(self) -> str:
        return self._chance.choice(("ann", "an", "o'hara %"))

    def _vector(self) -> list[float]:
        drawn = [self._chance.gauss(0, 1) for _ in range(8)]
        length = sum(one * one for one in drawn) ** 0.5
        return [one / length for one in drawn]


def _same(row: Row, read: Row) -> bool:
    return all(read.get(name) == value for name, value in row.items() if name != "embedding")


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
