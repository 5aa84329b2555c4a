from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.search.milvus import Milvus
from models.embedder import Embedder, load_embedder
from tests.integration.search.lite import Lite


@pytest.fixture(scope="package")
def lite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lite]:
    """One server for all tests; each has a collection of its own."""
    server = Lite(tmp_path_factory.mktemp("milvus"))
    server.start()
    try:
        server.ready()
        yield server
    finally:
        server.kill()


@pytest.fixture
def own_lite(tmp_path: Path) -> Iterator[Lite]:
    """A server to be mistreated; not started."""
    server = Lite(tmp_path / "milvus")
    yield server
    server.kill()


@pytest.fixture
def collection() -> str:
    return f"turns_{uuid.uuid4().hex}"


@pytest.fixture
async def milvus(lite: Lite) -> AsyncIterator[Milvus]:
    connection = Milvus(lite.uri)
    yield connection
    await connection.close()


@pytest.fixture(scope="package")
def embedder() -> Iterator[Embedder]:
    embedder = load_embedder("minilm")
    yield embedder
    embedder.close()
