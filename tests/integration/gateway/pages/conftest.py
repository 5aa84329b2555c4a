"""One gateway with pages for the tests of a file, which share its event loop; one of its own for who changes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.conftest import NewSettings
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.gateway.pages.place import HASTY, Place, place_of, policy_in
from tests.integration.worker.conftest import module_settings


@pytest.fixture(scope="module")
def shared_settings(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("pages")
    own = {"policy": policy_in(folder), "gateway_wait_s": 0.1, "gateway_requests_per_min": 0}
    return module_settings(kafka, folder, **own)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_place(shared_settings: Settings) -> AsyncIterator[Place]:
    async with place_of(shared_settings) as place:
        yield place


@pytest.fixture
def place(shared_place: Place) -> Iterator[Place]:
    shared_place.reset()
    yield shared_place
    shared_place.scripted.goes_on.set()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_hasty(shared_place: Place, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    log = tmp_path_factory.mktemp("hasty") / "gateway.log"
    with GatewayProcess(shared_place.gateway.settings, log, constants=HASTY) as gateway:
        yield gateway


@pytest.fixture
def hasty(place: Place, shared_hasty: GatewayProcess) -> Place:
    """The same behind a gateway that sends heads soon."""
    return Place(place.scripted, shared_hasty, place.policy)


@pytest.fixture
async def own_place(new_settings: NewSettings, tmp_path: Path) -> AsyncIterator[Place]:
    async with place_of(await new_settings(gateway_wait_s=0.1, policy=policy_in(tmp_path))) as place:
        yield place


@pytest.fixture
async def guarded_place(new_settings: NewSettings, tmp_path: Path) -> AsyncIterator[Place]:
    keys = {"gateway_api_keys": "key-of-nina-0123=nina", "gateway_requests_per_min": 3}
    async with place_of(await new_settings(gateway_wait_s=0.1, policy=policy_in(tmp_path), **keys)) as place:
        yield place
