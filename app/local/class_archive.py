"""Kafka's classes as Java has loaded them before: a broker that maps them starts in half the time.

Java writes such an archive when a program ends in order (https://openjdk.org/jeps/350). The first broker of a user
that is stopped leaves it in the cache, beside the jars; a broker that is killed leaves none. Java itself refuses an
archive of another Java or of other jars, and starts without it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from app.local.jars import cache_folder

WRITTEN = "classes.jsa"
"""In the folder of a broker that has written one."""
_PREFIX = "kafka-classes-"
_QUIET = "-Xlog:cds*=error"
"""Java warns of each class that it leaves out."""


class ClassArchive:
    """Of this Java with this class path."""

    def __init__(self, java: str, class_path: str) -> None:
        self.java = java
        self.class_path = class_path
        digest = hashlib.sha256(f"{Path(java).resolve()}\0{class_path}".encode()).hexdigest()
        self.path = cache_folder() / f"{_PREFIX}{digest[:16]}.jsa"

    def options(self) -> list[str]:
        """For a program that uses the archive if there is one."""
        return [_QUIET, f"-XX:SharedArchiveFile={self.path}"] if self.path.is_file() else []

    def options_of_broker(self, folder: Path) -> list[str]:
        """For a broker, which writes the archive into its folder if there is none."""
        return self.options() or [_QUIET, f"-XX:ArchiveClassesAtExit={folder / WRITTEN}"]

    def keep(self, folder: Path) -> None:
        """Move what the broker of this folder wrote to the cache, in place of older ones, unless it is damaged."""
        written = folder / WRITTEN
        part = self.path.with_suffix(f".{os.getpid()}")
        try:
            if self._is_whole(written):
                shutil.copyfile(written, part)
                for old in self.path.parent.glob(f"{_PREFIX}*.jsa"):
                    old.unlink(missing_ok=True)
                part.replace(self.path)
            written.unlink()
        except OSError:
            part.unlink(missing_ok=True)  # a full disk, for example: brokers start without it, as this one did

    def _is_whole(self, written: Path) -> bool:
        """As Java sees it. It may have been killed while it wrote."""
        check = ["-Xshare:on", "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={written}", "-cp", self.class_path]
        return _succeeds([self.java, *check, "-version"])


def _succeeds(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0  # noqa: S603
    except subprocess.TimeoutExpired:
        return False
