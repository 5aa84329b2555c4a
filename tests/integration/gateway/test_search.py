"""`/v1/search`, with a real Milvus and a real embedder."""

from __future__ import annotations

from pathlib import Path

import httpx

from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from app.settings import Settings
from models.embedder import load_embedder
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.search.history import Bench, turn


async def test_a_user_finds_their_own_words_by_meaning(settings_with_milvus: Settings, tmp_path: Path) -> None:
    settings = settings_with_milvus
    milvus, embedder = Milvus(settings.milvus_uri), load_embedder(settings.embedder)
    async with Bench(MilvusStore(milvus, settings.milvus_collection), embedder) as bench:
        bench.submit(
            turn("nina", "r1", "Where is my parcel?", "It comes on Friday."),
            turn("nina", "r2", "Which colours has the jacket?", "Blue and green.", conversation_id="clothes"),
            turn("omar", "r3", "Where is my parcel?", "It is lost."),
        )
        await bench.settled(3)
    embedder.close()
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=120, params={"user_id": "nina"}) as http:
            meant = {"q": "delivery of my package", "limit": 2}
            hits = (await http.get("/v1/search", params=meant)).json()["hits"]
            assert hits[0]["request_id"] == "r1"
            assert {hit["user_id"] for hit in hits} == {"nina"}
            only = {"q": "parcel", "conversation_id": "clothes", "role": "assistant"}
            hits = (await http.get("/v1/search", params=only)).json()["hits"]
            assert [hit["text"] for hit in hits] == ["Blue and green."]
        assert gateway.stop() == 0


async def test_without_milvus_the_search_alone_is_unavailable(settings: Settings, tmp_path: Path) -> None:
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=120) as http:
            refused = await http.get("/v1/search", params={"q": "anything"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
            assert int(refused.headers["retry-after"]) >= 1
            assert (await http.post("/v1/requests", json={"prompt": "hello"})).status_code == 202
