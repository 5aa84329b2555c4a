"""`parley search reindex`: fill a new collection, with the guard and the embedder of the settings."""

from __future__ import annotations

import click
from aiokafka.errors import KafkaError

from app.commands.terminal import note
from app.features.guard.stored import hiding_by
from app.kafka.clients import KafkaUnusableError
from app.policy.check import read_policy
from app.policy.file import PolicyError
from app.search.index import HideError
from app.search.reindex import Reindex
from app.search.vector_store import VectorStore
from app.settings import Settings
from models.embedder.embedder import Embeds


async def reindex(settings: Settings, vectors: VectorStore, embedder: Embeds) -> None:
    """Raises `SearchError`, and `click.ClickException` with one line."""
    try:
        hide = hiding_by(read_policy(settings))
        done = await Reindex(settings, vectors, embedder, note, hide).run()
    except (KafkaError, KafkaUnusableError, PolicyError, HideError) as error:
        raise click.ClickException(f"{error}; the collection in use is unchanged") from None
    note(f"{settings.milvus_collection} is now {done.collection}: {done.turns} turns, {done.rows} rows")
    if done.left_out:
        note(f"{done.left_out} turns were skipped: erased, expired or without text")
    note(f"restart workers and gateways that have another embedder with PARLEY_EMBEDDER={settings.embedder}")
