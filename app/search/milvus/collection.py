"""The collection: created if it is missing, checked if it exists, and loaded in any case.

Several workers may do this at once, against an old or a new server. Nothing here relies on the result of a create call;
the server's description afterwards counts. On a server without full text search, the collection is created without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pymilvus import AsyncMilvusClient, DataType, Function, FunctionType

from app.search.identity import EmbedderMark
from app.search.milvus.connection import COLLECTION_NOT_FOUND, Milvus
from app.search.rows import MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_TEXT_BYTES
from app.search.vector_store import IndexAwayError, IndexMismatchError, IndexRefusedError, SearchError
from app.wire.ids import MAX_REQUEST_ID_LENGTH
from app.wire.request import MAX_REPLACED

TEXT_FIELDS = {
    "user_id": MAX_NAME_BYTES,
    "conversation_id": MAX_NAME_BYTES,
    "tenant": MAX_NAME_BYTES,
    "role": 16,
    "model_version": MAX_NAME_BYTES,
}
_DENSE_INDEX = {"index_type": "HNSW", "metric_type": "COSINE", "params": {"M": 16, "efConstruction": 200}}
_SPARSE_INDEX: dict[str, Any] = {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "BM25", "params": {}}
_LOAD_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Layout:
    """What a collection supports. `lite`: milvus-lite serves it. `asked_at`, `replaces`: its rows have that field.

    `embedder` is None for a collection from a version that did not store it. `stored_as` is the collection's own name
    if the name in use is an alias.
    """

    dimension: int
    full_text: bool
    lite: bool
    asked_at: bool
    replaces: bool
    embedder: EmbedderMark | None
    stored_as: str


async def open_collection(milvus: Milvus, name: str, identity: EmbedderMark, dimension: int) -> Layout:
    """Create or check the collection and load it. Raises `SearchError`."""
    version = str(await milvus.call("get_server_version"))
    layout = await read_layout(milvus, name, dimension, version)
    if layout is None:
        await _create(milvus, name, identity, dimension, version)
        layout = await read_layout(milvus, name, dimension, version)
        if layout is None:
            raise IndexAwayError(f"Milvus at {milvus.uri}: the collection '{name}' was created and does not exist")
    check_embedder(layout, identity, name)
    if layout.embedder is None:
        await milvus.call("alter_collection_properties", layout.stored_as, identity.properties())
    await _index(milvus, name, "embedding", _DENSE_INDEX)
    if layout.full_text:
        await _index(milvus, name, "sparse", _SPARSE_INDEX)
    await load(milvus, name)
    return layout


async def load(milvus: Milvus, name: str) -> None:
    await milvus.call("load_collection", name, timeout_s=_LOAD_TIMEOUT_S)


async def read_layout(milvus: Milvus, name: str, dimension: int | None, version: str = "") -> Layout | None:
    """The collection's layout, None if it does not exist. A `dimension` of None fits any."""
    try:
        described = await milvus.call("describe_collection", name)
    except IndexAwayError as error:
        if error.code == COLLECTION_NOT_FOUND:
            return None
        raise
    fields = {field["name"]: field for field in described["fields"]}
    missing = [field for field in ("turn_id", "text", "created_at", "embedding", *TEXT_FIELDS) if field not in fields]
    if missing:
        raise IndexMismatchError(
            f"Milvus collection '{name}' has no field '{missing[0]}', so it was not created by Parley; "
            "set PARLEY_MILVUS_COLLECTION to another name"
        )
    stored = int(fields["embedding"]["params"]["dim"])
    if dimension is not None and stored != dimension:
        raise IndexMismatchError(
            f"Milvus collection '{name}' holds embeddings of {stored} dimensions, the embedder makes {dimension}; "
            "set PARLEY_EMBEDDER to the one it was filled with, or fill a new one with `parley search reindex`"
        )
    properties = described.get("properties") or {}
    outputs = {output for function in described.get("functions") or [] for output in function["output_field_names"]}
    return Layout(
        stored,
        full_text="sparse" in outputs,
        lite=version.startswith("milvus_lite"),
        asked_at="asked_at" in fields,
        replaces="replaces" in fields,
        embedder=EmbedderMark.read(properties),
        stored_as=str(described.get("collection_name") or name),
    )


def check_embedder(layout: Layout, identity: EmbedderMark, name: str) -> None:
    """Raise `IndexMismatchError` if another embedder has filled the collection."""
    if layout.embedder is not None and not layout.embedder.is_same(identity):
        raise IndexMismatchError(
            f"Milvus collection '{name}' was filled with the embedder '{layout.embedder.name}', and "
            f"'{identity.name}' is another one (similarity {layout.embedder.likeness(identity):.2f} of 1); set "
            "PARLEY_EMBEDDER to the former, or fill a new collection with `parley search reindex`"
        )


async def _create(milvus: Milvus, name: str, identity: EmbedderMark, dimension: int, version: str) -> None:
    """Create it with full text search, or without. Another worker may be faster, so the caller checks the result."""
    for full_text in (True, False) if _may_have_full_text(version) else (False,):
        try:
            schema = _schema(dimension, full_text=full_text)
            await milvus.call("create_collection", name, schema=schema, properties=identity.properties())
        except SearchError as error:
            if await milvus.call("has_collection", name):
                return
            if not full_text or not isinstance(error, IndexRefusedError):
                raise
        else:
            return


def _may_have_full_text(version: str) -> bool:
    """BM25 came with Milvus 2.5. Older servers accept the schema and ignore the function in it."""
    number = re.match(r"v?(\d+)\.(\d+)", version)
    return number is None or (int(number[1]), int(number[2])) >= (2, 5)


def _schema(dimension: int, *, full_text: bool) -> Any:
    schema = AsyncMilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("turn_id", DataType.VARCHAR, is_primary=True, max_length=MAX_KEY_BYTES)
    analyzed = {"enable_analyzer": True} if full_text else {}
    schema.add_field("text", DataType.VARCHAR, max_length=MAX_TEXT_BYTES, **analyzed)
    for field, max_length in TEXT_FIELDS.items():
        schema.add_field(field, DataType.VARCHAR, max_length=max_length)
    schema.add_field("created_at", DataType.INT64)
    schema.add_field("asked_at", DataType.INT64)
    schema.add_field("replaces", DataType.VARCHAR, max_length=MAX_REPLACED * (MAX_REQUEST_ID_LENGTH + 1))
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=dimension)
    if full_text:
        schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
        schema.add_function(
            Function("bm25", FunctionType.BM25, input_field_names=["text"], output_field_names=["sparse"])
        )
    return schema


async def _index(milvus: Milvus, name: str, field: str, index: dict[str, Any]) -> None:
    if await milvus.call("list_indexes", name, field):
        return
    params = AsyncMilvusClient.prepare_index_params()
    params.add_index(field, **index)
    try:
        await milvus.call("create_index", name, params, timeout_s=_LOAD_TIMEOUT_S)
    except SearchError:
        # milvus-lite cannot wait for the creation; another worker may have created it first
        if not await milvus.call("list_indexes", name, field):
            raise
