"""Which Kafka is recent enough: by what Kafka 3.9.1 and 4.3.1 have answered to ApiVersions, byte for byte."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.kafka.broker_version import check_version
from app.kafka.cluster import Cluster
from app.kafka.errors import KafkaAwayError, KafkaSetupError

ANSWERS = Path(__file__).parents[2] / "fixtures" / "kafka"
API_VERSIONS = 18


@asynccontextmanager
async def broker(of: str, versions: tuple[int, ...] = (0, 4)) -> AsyncIterator[Cluster]:
    """A server that answers ApiVersions as a broker did. It closes the connection at what it does not know."""
    answers = {number: (ANSWERS / f"api_versions_{number}_of_{of}.bin").read_bytes() for number in (0, 4)}
    if max(versions) == 0:  # the entry of ApiVersions itself: key, lowest and highest version
        answers[0] = answers[0].replace(
            struct.pack(">hhh", API_VERSIONS, 0, 4), struct.pack(">hhh", API_VERSIONS, 0, 2)
        )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                key, version, number = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
                if key != API_VERSIONS:
                    break
                answer = struct.pack(">i", number) + answers[version]
                writer.write(struct.pack(">i", len(answer)) + answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield Cluster((f"127.0.0.1:{server.sockets[0].getsockname()[1]}",))


async def test_a_recent_one_is_accepted_without_a_word() -> None:
    async with broker("4.3.1") as cluster:
        assert await check_version(cluster) is None


async def test_one_that_is_too_old_is_refused_with_its_release_and_the_one_that_is_needed() -> None:
    async with broker("3.9.1") as cluster:
        with pytest.raises(KafkaSetupError, match=r"is Kafka 3\.9, and Parley needs 4\.0 or later"):
            await check_version(cluster)


async def test_one_that_knows_no_features_is_refused() -> None:
    async with broker("3.9.1", versions=(0,)) as cluster:
        with pytest.raises(KafkaSetupError, match=r"is older than 4\.0 .* needs 4\.0 or later"):
            await check_version(cluster)


async def test_a_cluster_whose_upgrade_was_not_finished_is_warned_of_with_the_command() -> None:
    async with broker("4.3.1-upgraded") as cluster:
        warning = await check_version(cluster)
    assert warning is not None
    assert "transaction.version 0" in warning
    assert "kafka-features.sh upgrade --feature transaction.version=2" in warning


async def test_one_that_is_away_is_away() -> None:
    with pytest.raises(KafkaAwayError, match="parley local up"):
        await check_version(Cluster(("127.0.0.1:1",)))
