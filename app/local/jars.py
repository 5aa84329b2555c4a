"""Jars, downloaded once per user and shared by every instance.

A download can be interrupted at any byte. Each file being written has a marker beside it, so that the next attempt
discards exactly that file. The list of jars with their sizes is written last, and only jars that match the list are
used. A download must have the checksums that are shipped with Parley (`kafka_jars.sha256`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.folder_lock import locked
from app.local.errors import LocalError
from app.local.report import Report

# The newest release whose artifacts are all on Maven Central.
KAFKA_VERSION = "4.3.1"
KAFKA = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    # Kafka logs through slf4j 1.7, which needs this bridge to log4j.
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
CHECKSUMS = Path(__file__).with_name("kafka_jars.sha256")


def kafka_jars(report: Report) -> list[Path]:
    """The class path of a broker."""
    cache = JarCache(cache_folder(), f"Apache Kafka {KAFKA_VERSION}", KAFKA, read_checksums(CHECKSUMS))
    return cache.jars(report)


def read_checksums(path: Path) -> dict[str, str]:
    """The SHA-256 of each jar by its path in a Maven repository, in the format of `sha256sum`."""
    pairs = (line.split(maxsplit=1) for line in path.read_text().splitlines())
    return {name: checksum for checksum, name in pairs}


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "parley")


class JarCache:
    """The jars of some coordinates and their dependencies, in one folder.

    `checksums` has the SHA-256 of each jar by its path in the repository. `repository` is a URL, by default Maven's
    own.
    """

    def __init__(
        self,
        folder: Path,
        title: str,
        coordinates: Sequence[str],
        checksums: Mapping[str, str],
        repository: str | None = None,
    ) -> None:
        self._folder = folder
        self._title = title
        self._coordinates = list(coordinates)
        self._checksums = checksums
        self._repository = repository
        self._list = folder / f"{title.lower().replace(' ', '-')}.json"

    def jars(self, report: Report) -> list[Path]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if jars := self._complete():
                return jars
            with locked(
                self._folder / "lock",
                f"another process is downloading {self._title}",
                report,
                timeout=3600.0,
                failure=LocalError,
            ):
                return self._complete() or self._download(report)
        except OSError as error:
            raise LocalError(f"the folder {self._folder} cannot be used for downloads: {error.strerror}") from error

    def _complete(self) -> list[Path] | None:
        try:
            listed = json.loads(self._list.read_text())
            if listed["coordinates"] != self._coordinates:
                return None
            sizes = {self._folder / name: int(size) for name, size in listed["jars"].items()}
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return None  # missing or incomplete: the download checks all of them again
        damaged = [jar for jar, size in sizes.items() if not jar.is_file() or jar.stat().st_size != size]
        for jar in damaged:
            jar.unlink(missing_ok=True)
        return None if damaged else list(sizes)

    def _download(self, report: Report) -> list[Path]:
        try:
            from app.local.maven import MavenDownload  # noqa: PLC0415  # jgo is in an extra and slow to import
        except ModuleNotFoundError as error:
            raise LocalError(f"the package {error.name} is missing: pip install 'parley[local]'") from error

        report(f"downloading {self._title} to {self._folder} (once)")
        download = MavenDownload(self._folder / "maven", self._repository, report)
        jars = download.fetch(self._title, self._coordinates)
        self._check(jars)
        sizes = {str(jar.relative_to(self._folder)): jar.stat().st_size for jar in jars}
        partial = self._list.with_suffix(".part")
        partial.write_text(json.dumps({"coordinates": self._coordinates, "jars": sizes}, indent=1))
        partial.replace(self._list)
        report(f"downloaded {download.megabytes:.0f} MB")
        return jars

    def _check(self, jars: Sequence[Path]) -> None:
        """Raise `LocalError` unless each jar has its recorded checksum."""
        folder = self._folder / "maven"
        wrong = [jar for jar in jars if _sha256(jar) != self._checksums.get(jar.relative_to(folder).as_posix())]
        for jar in wrong:
            jar.unlink()
        if wrong:
            names = ", ".join(jar.name for jar in wrong)
            raise LocalError(f"the download of {self._title} had wrong checksums ({names}) and was deleted")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
