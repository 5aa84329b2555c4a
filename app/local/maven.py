"""Maven artifacts by `jgo`, without Maven and without a Java."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock

from jgo.maven import Artifact, MavenContext, PythonResolver
from jgo.parse import Coordinate
from requests import ConnectionError as NoConnection
from requests import Timeout
from requests.exceptions import ChunkedEncodingError

from app.local.report import Report

MARKER = ".part"
ATTEMPTS = 4
TELL_EVERY_MB = 5
MEGABYTE = 1e6


class MavenDownload:
    """Resolves and downloads into `repository`, which may hold the rest of an attempt that was cut off."""

    def __init__(self, repository: Path, report: Report) -> None:
        self.megabytes = 0.0
        self._told = 0.0
        self._report = report
        self._lock = Lock()
        repository.mkdir(parents=True, exist_ok=True)
        for marker in repository.rglob(f"*{MARKER}"):
            marker.with_name(marker.name.removesuffix(MARKER)).unlink(missing_ok=True)
            marker.unlink()
        self._context = MavenContext(repo_cache=repository, resolver=_MarkingResolver(progress_callback=self._progress))

    def resolve(self, coordinates: Sequence[str]) -> list[Artifact]:
        # `raw`: the dependency management of one coordinate must not choose the versions of the others.
        wanted = [replace(Coordinate.parse(text), scope="compile", raw=True) for text in coordinates]
        inputs, transitive = self._context.resolver.resolve([self._context.create_dependency(one) for one in wanted])
        return [one.artifact for one in (*inputs, *transitive) if one.scope in {"compile", "runtime"}]

    def fetch(self, artifact: Artifact) -> Path:
        return Path(artifact.resolve())

    @contextmanager
    def _progress(self, filename: str, _size: int) -> Iterator[Callable[[int], None]]:
        def arrived(count: int) -> None:
            with self._lock:
                self.megabytes += count / MEGABYTE
                if self.megabytes - self._told >= TELL_EVERY_MB:
                    self._told = self.megabytes
                    self._report(f"  {self.megabytes:.0f} MB ({filename})")

        yield arrived


class _MarkingResolver(PythonResolver):
    """Marks the file it writes, and tries again where the connection breaks."""

    def download(self, artifact: Artifact) -> Path | None:
        target = Path(artifact.cached_path)
        marker = target.with_name(target.name + MARKER)
        marker.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, ATTEMPTS + 1):
            marker.touch()
            try:
                done: Path | None = super().download(artifact)
            except (NoConnection, Timeout, ChunkedEncodingError):
                target.unlink(missing_ok=True)
                if attempt == ATTEMPTS:
                    raise
                time.sleep(2.0 ** (attempt - 1))
            else:
                marker.unlink()
                return done
        return None
