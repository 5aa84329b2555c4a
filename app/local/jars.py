"""Kafka's jars, downloaded once per user and shared by every instance.

`kafka_jars.sha256` lists them by their path in a Maven repository: Kafka, what it needs, and the bridge from the slf4j
that it logs through to log4j. A download must have the checksum that stands there. One that was interrupted, at any
byte, left a file that is no whole archive, and is done again.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from app.local.report import LocalError, Report
from app.process.folder_lock import locked

# The newest release whose artifacts are all on Maven Central.
KAFKA_VERSION = "4.3.1"
CHECKSUMS = Path(__file__).with_name("kafka_jars.sha256")


def kafka_jars(report: Report) -> list[Path]:
    """The class path of a broker."""
    return JarCache(cache_folder(), f"Apache Kafka {KAFKA_VERSION}", read_checksums(CHECKSUMS)).jars(report)


def read_checksums(path: Path) -> dict[str, str]:
    """The SHA-256 of each jar by its path in a Maven repository, in the format of `sha256sum`."""
    pairs = (line.split(maxsplit=1) for line in path.read_text().splitlines())
    return {name: checksum for checksum, name in pairs}


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base, "parley")


class JarCache:
    """Some jars in one folder. `repository` is a URL, by default Maven's own."""

    def __init__(self, folder: Path, title: str, checksums: Mapping[str, str], repository: str | None = None) -> None:
        self._folder = folder
        self._title = title
        self._checksums = {folder / "maven" / path: checksum for path, checksum in checksums.items()}
        self._repository = repository

    def jars(self, report: Report) -> list[Path]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._missing():
                waiting = f"another process is downloading {self._title}"
                with locked(self._folder / "lock", waiting, report, timeout=3600.0, failure=LocalError):
                    self._download(report)
        except OSError as error:
            raise LocalError(f"the folder {self._folder} cannot be used for downloads: {error.strerror}") from error
        return list(self._checksums)

    def _missing(self) -> list[Path]:
        return [jar for jar in self._checksums if not zipfile.is_zipfile(jar)]

    def _download(self, report: Report) -> None:
        missing = self._missing()
        if not missing:
            return
        try:
            from app.local.maven import MavenDownload  # jgo is in an extra and slow to import
        except ModuleNotFoundError as error:
            raise LocalError(f"the package {error.name} is missing: install Parley with its extra `local`") from error

        report(f"downloading {self._title} to {self._folder} (once)")
        for damaged in missing:
            damaged.unlink(missing_ok=True)
        download = MavenDownload(self._folder / "maven", self._repository, report)
        download.fetch(self._title, missing)
        wrong = [jar for jar in missing if _sha256(jar) != self._checksums[jar]]
        for jar in wrong:
            jar.unlink()
        if wrong:
            names = ", ".join(jar.name for jar in wrong)
            raise LocalError(f"the download of {self._title} had wrong checksums ({names}) and was deleted")
        report(f"downloaded {download.megabytes:.0f} MB")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
