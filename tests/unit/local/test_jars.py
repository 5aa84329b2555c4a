"""The cache of jars, against a Maven repository on loopback."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.local import maven
from app.local.jars import JarCache
from app.local.report import LocalError
from tests.unit.local.maven_server import MavenServer, serving


@pytest.fixture
def server() -> MavenServer:
    return MavenServer("broker", "clients", "storage")


@pytest.fixture
def cache(server: MavenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JarCache]:
    monkeypatch.setattr(maven, "PAUSE_S", 0.01)
    with serving(server) as repository:
        checksums = {
            path.removeprefix("/"): hashlib.sha256(content).hexdigest() for path, content in server.files.items()
        }
        yield JarCache(tmp_path / "cache", "Broker 1.0", checksums, repository)


def _names(jars: list[Path]) -> set[str]:
    assert all(zipfile.ZipFile(jar).testzip() is None for jar in jars)
    return {jar.name for jar in jars}


ALL = {"broker-1.0.jar", "clients-1.0.jar", "storage-1.0.jar"}


def test_downloads_what_is_listed(cache: JarCache) -> None:
    reported: list[str] = []
    assert _names(cache.jars(reported.append)) == ALL
    assert "downloading Broker 1.0" in reported[0]


def test_downloads_once(cache: JarCache, server: MavenServer) -> None:
    first = cache.jars(print)
    server.served.clear()
    assert cache.jars(print) == first
    assert server.served == []


def test_a_broken_connection_is_tried_again(cache: JarCache, server: MavenServer) -> None:
    server.broken = {"clients-1.0.jar": 2, "storage-1.0.jar": 1}
    assert _names(cache.jars(print)) == ALL


def test_what_a_failed_download_has_is_kept_and_the_rest_fetched_later(cache: JarCache, server: MavenServer) -> None:
    server.broken = {"storage-1.0.jar": maven.ATTEMPTS}
    with pytest.raises(LocalError, match=r"the download of Broker 1.0 failed: .*run it again") as caught:
        cache.jars(print)
    assert "\n" not in str(caught.value)
    server.served.clear()
    assert _names(cache.jars(print)) == ALL
    assert "storage-1.0.jar" in server.served
    assert "clients-1.0.jar" not in server.served


def test_a_file_that_a_killed_download_left_half_is_fetched_again(
    cache: JarCache, server: MavenServer, tmp_path: Path
) -> None:
    whole = server.files["/org/example/clients/1.0/clients-1.0.jar"]
    half = tmp_path / "cache/maven/org/example/clients/1.0/clients-1.0.jar"
    half.parent.mkdir(parents=True)
    half.write_bytes(whole[:100])
    assert _names(cache.jars(print)) == ALL
    assert half.read_bytes() == whole


def test_a_jar_with_another_checksum_is_thrown_away(cache: JarCache, server: MavenServer, tmp_path: Path) -> None:
    jars = "/org/example/{0}/1.0/{0}-1.0.jar"
    good = server.files[jars.format("clients")]
    server.files[jars.format("clients")] = server.files[jars.format("storage")]
    with pytest.raises(LocalError, match=r"wrong checksums \(clients-1.0.jar\)"):
        cache.jars(print)
    assert not (tmp_path / "cache/maven" / jars.format("clients")[1:]).exists()
    server.files[jars.format("clients")] = good
    assert _names(cache.jars(print)) == ALL


def test_a_jar_that_is_no_archive_is_fetched_again(cache: JarCache) -> None:
    jar = cache.jars(print)[0]
    jar.write_bytes(b"disk was full")
    assert _names(cache.jars(print)) == ALL


def test_a_missing_artifact_is_told_by_name(cache: JarCache, server: MavenServer) -> None:
    del server.files["/org/example/storage/1.0/storage-1.0.jar"]
    with pytest.raises(LocalError, match=r"storage"):
        cache.jars(print)
