"""The broker's jars, downloaded once per user and shared by every instance.

A download can end at any byte. Each file being written has a marker beside it, so that the next try throws away just
that file; the list of jars is written last, with their sizes, and only what it lists and measures is ever started.
"""

from __future__ import annotations

import json
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.local.errors import LocalError
from app.local.lock import locked
from app.local.report import Report

# The newest release whose artifacts are all on Maven Central.
KAFKA_VERSION = "4.3.1"
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    # Kafka logs through slf4j 1.7, which needs this to reach log4j.
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
PARALLEL = 6


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "parley")


def kafka_jars(report: Report) -> list[Path]:
    """The class path of a broker; downloads what is missing."""
    cache = cache_folder()
    manifest = cache / f"kafka-{KAFKA_VERSION}.json"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if jars := _listed(manifest, cache):
            return jars
        with locked(cache / "download.lock", "another process is downloading Kafka", report, timeout=3600.0):
            return _listed(manifest, cache) or _download(cache, manifest, report)
    except OSError as error:
        if type(error).__module__.startswith("requests"):
            raise LocalError(_failed(error)) from error
        raise LocalError(f"the folder {cache} cannot be used: {error}") from error


def _listed(manifest: Path, cache: Path) -> list[Path] | None:
    try:
        listed = json.loads(manifest.read_text())
        if listed["coordinates"] != list(COORDINATES):
            return None
        sizes = {cache / name: int(size) for name, size in listed["jars"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    if all(jar.is_file() and jar.stat().st_size == size for jar, size in sizes.items()):
        return list(sizes)
    for jar, size in sizes.items():
        if jar.is_file() and jar.stat().st_size != size:
            jar.unlink()
    return None


def _download(cache: Path, manifest: Path, report: Report) -> list[Path]:
    try:
        from app.local.maven import MavenDownload  # noqa: PLC0415  # jgo is in an extra and slow to import
    except ModuleNotFoundError as error:
        raise LocalError(f"{error.name} is missing: pip install 'parley[local]'") from error

    report(f"downloading Apache Kafka {KAFKA_VERSION} (45 MB, once) to {cache}")
    download = MavenDownload(cache / "maven", report)
    try:
        artifacts = download.resolve(COORDINATES)
        with ThreadPoolExecutor(PARALLEL) as pool:
            jars = list(pool.map(download.fetch, artifacts))
    except (RuntimeError, ValueError) as error:
        raise LocalError(_failed(error)) from error
    broken = [jar.name for jar in jars if not zipfile.is_zipfile(jar)]
    if broken:
        for jar in jars:
            if jar.name in broken:
                jar.unlink()
        raise LocalError(f"the download of Kafka is damaged ({', '.join(broken)}): run it again")
    listed = {"coordinates": COORDINATES, "jars": {str(jar.relative_to(cache)): jar.stat().st_size for jar in jars}}
    partial = manifest.with_suffix(".part")
    partial.write_text(json.dumps(listed, indent=1))
    partial.replace(manifest)
    report(f"downloaded {download.megabytes:.0f} MB")
    return jars


def _failed(error: Exception) -> str:
    reason = " ".join(str(error).split())[:300]
    return f"the download of Kafka {KAFKA_VERSION} failed: {reason}; run it again to go on from there"
