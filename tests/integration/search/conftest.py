from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from app.local.milvus import MilvusNode
from app.search.milvus.connection import Milvus
from models.embedder import Embedder, load_embedder


@pytest.fixture
def collection() -> str:
    return f"turns_{uuid.uuid4().hex}"


@pytest.fixture
async def connection(milvus: MilvusNode) -> AsyncIterator[Milvus]:
    connection = Milvus(milvus.uri)
    yield connection
    await connection.close()


@pytest.fixture(scope="package")
def embedder() -> Iterator[Embedder]:
    embedder = load_embedder("minilm")
    yield embedder
    embedder.close()
