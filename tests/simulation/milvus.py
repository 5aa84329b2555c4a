"""A Milvus for many processes: calls take long, fail before or after their effect, and land after their caller left.

Implements what `app.search.milvus` asks of its `Milvus`, over rows in memory; the filters are read, not parsed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from app.search.identity import EmbedderMark
from app.search.vector_store import IndexAwayError
from tests.simulation.clients import Link

_TIMEOUT_S = 3.0
_DIMENSION = 4


class SameVector:
    """An embedder for those who never search."""

    name = "same"
    dimension = _DIMENSION

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> npt.NDArray[np.float32]:
        await asyncio.sleep(0)
        return np.ones((len(texts), _DIMENSION), dtype=np.float32)

    def close(self) -> None:
        return None


def _hit(row: dict[str, Any]) -> dict[str, Any]:
    return {"turn_id": row["turn_id"], "distance": 1.0, "entity": dict(row)}


@dataclass(slots=True)
class MilvusServer:
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    late: float = 0.0
    """How likely a call is to land seconds late, whether or not its caller still waits."""


class SimMilvus:
    uri = "simulated"

    def __init__(self, server: MilvusServer, link: Link) -> None:
        self._server = server
        self._link = link

    async def call(self, method: str, /, *args: Any, timeout_s: float | None = None, **options: Any) -> Any:
        effect = self._effect(method, args, options)
        world, answered = self._link.broker.world, self._link.loop.create_future()

        def arrive() -> None:
            if not self._link.cut:
                result = effect()
                reply = lambda: answered.done() or answered.set_result(result)  # noqa: E731
                world.after(world.latency(), lambda: self._link.loop.call_soon(reply) and None)

        is_late = world.random.random() < self._server.late
        world.after(world.random.choice((2.0, 5.0, 12.0)) if is_late else world.latency(), arrive)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await answered
        except TimeoutError:
            raise IndexAwayError("no answer in time") from None

    async def close(self) -> None:
        return None

    def _effect(self, method: str, args: Sequence[Any], options: dict[str, Any]) -> Callable[[], Any]:
        rows = self._server.rows
        if method == "upsert":
            return lambda: rows.update({row["turn_id"]: row for row in args[1]})
        if method == "delete":
            return lambda: self._delete(options["filter"])
        if method == "search":
            return lambda: [[_hit(row) for row in self._found(options["filter"])[: options["limit"]]]]
        if method == "query" and "replaces" in options["filter"]:
            user = re.findall(r'"([^"]*)"', options["filter"])[0]
            return lambda: [dict(row) for row in rows.values() if row["user_id"] == user and row["replaces"]]
        if method == "query":
            keys = re.findall(r'"([^"]*)"', options["filter"])
            return lambda: [dict(rows[key]) for key in keys if key in rows]
        return lambda: self._describe().get(method)

    def _found(self, where: str) -> list[dict[str, Any]]:
        """The newest rows first: a ranking that does not depend on the question."""
        user = re.search(r'user_id == "([^"]*)"', where)
        since, before, asked = (
            re.search(rf" and {term} (\d+)", where) for term in ("created_at >=", "created_at <", "asked_at >")
        )
        erased = re.findall(r'conversation_id != "([^"]*)" or asked_at > (\d+)', where)
        rows = [
            row
            for row in self._server.rows.values()
            if user
            and all(row["conversation_id"] != name or row["asked_at"] > int(at) for name, at in erased)
            and row["user_id"] == user[1]
            and (since is None or row["created_at"] >= int(since[1]))
            and (before is None or row["created_at"] < int(before[1]))
            and (asked is None or row["asked_at"] > int(asked[1]))
        ]
        return sorted(rows, key=lambda row: (-row["created_at"], row["turn_id"]))

    def _delete(self, where: str) -> None:
        user = re.search(r'user_id == "([^"]*)"', where)
        asked = re.search(r"asked_at <= (\d+)", where)
        conversation = re.search(r'conversation_id == "([^"]*)"', where)
        for key, row in list(self._server.rows.items()):
            is_meant = conversation is None or row["conversation_id"] == conversation[1]
            if user and asked and row["user_id"] == user[1] and is_meant and row["asked_at"] <= int(asked[1]):
                del self._server.rows[key]

    def _describe(self) -> dict[str, Any]:
        names = ("turn_id", "text", "created_at", "asked_at", "user_id", "conversation_id", "tenant", "role")
        fields: list[dict[str, Any]] = [{"name": name} for name in (*names, "model_version", "replaces")]
        fields.append({"name": "embedding", "params": {"dim": _DIMENSION}})
        same = EmbedderMark("same", np.ones(_DIMENSION, dtype=np.float32)).properties()
        return {
            "get_server_version": "v2.6.0",
            "describe_collection": {"collection_name": "turns", "fields": fields, "properties": same},
            "list_indexes": ["there"],
        }
