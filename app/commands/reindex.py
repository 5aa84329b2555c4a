"""`parley search reindex`: fill a new collection, with the guard and the embedder of the settings."""

from __future__ import annotations

from functools import partial

import click
from aiokafka.errors import KafkaError

from app.commands.terminal import note
from app.features.guard.analyzer import AnalyzerError
from app.features.guard.guard import Guard
from app.features.guard.texts import indexed_turn
from app.features.guard.turns import Asker, Patience
from app.kafka.clients import KafkaUnusableError
from app.policy.file import PolicyError, read_policy
from app.search.identity import Embeds
from app.search.reindex import Reindex
from app.search.vector_store import VectorStore
from app.settings import Settings
from app.wire.turn import Turn


async def reindex(settings: Settings, vectors: VectorStore, embedder: Embeds) -> None:
    """Raises `SearchError`, and `click.ClickException` with one line."""
    try:
        guard = Guard(read_policy(settings.policy))
        done = await Reindex(settings, vectors, embedder, note, partial(hide, guard)).run()
    except (KafkaError, KafkaUnusableError, PolicyError, AnalyzerError) as error:
        raise click.ClickException(f"{error}; the collection in use is unchanged") from None
    note(f"{settings.milvus_collection} is now {done.collection}: {done.turns} turns, {done.rows} rows")
    if done.left_out:
        note(f"{done.left_out} turns were skipped: erased, expired or without text")
    note(f"restart workers and gateways that have another embedder with PARLEY_EMBEDDER={settings.embedder}")


async def hide(guard: Guard, turn: Turn, secret: bytes) -> Turn:
    """The turn without private values, as the workers index it; raises `AnalyzerError`."""
    if not guard.rules.masks:
        return turn
    values = turn.private
    if values is None:
        about = f"turn {turn.user_id}/{turn.request_id}"
        asker = Asker(turn.user_id, turn.tenant or "", about, Patience.BACKGROUND)
        values = await guard.find([turn.prompt, turn.answer], asker)
    return indexed_turn(turn, secret, values)
