"""Maven artifacts with `jgo`, without Maven and without a Java."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from jgo.maven import MavenContext, PythonResolver
from jgo.parse import Coordinate
from requests import RequestException
from requests.exceptions import ChunkedEncodingError, Timeout
from requests.exceptions import ConnectionError as ConnectionFailure

from app.local.errors import LocalError
from app.local.report import Report

MARKER = ".part"
ATTEMPTS = 4
PAUSE_S = 0.5
PARALLEL = 6
TELL_EVERY_MB = 5
TELL_EVERY_S = 3.0
MEGABYTE = 1e6


class MavenDownload:
    """Downloads into `folder`, which may contain the rest of an interrupted attempt."""

    def __init__(self, folder: Path, repository: str | None, report: Report) -> None:
        self.megabytes = 0.0
        self._told = 0.0
        self._told_at = time.monotonic()
        self._report = report
        self._lock = Lock()
        folder.mkdir(parents=True, exist_ok=True)
        for marker in folder.rglob(f"*{MARKER}"):
            _marked(marker).unlink(missing_ok=True)
            marker.unlink()
        self._context = MavenContext(
            repo_cache=folder,
            remote_repos=None if repository is None else {"central": repository},
            resolver=_MarkingResolver(progress_callback=self._progress),
        )

    def fetch(self, title: str, coordinates: Sequence[str]) -> list[Path]:
        try:
            artifacts = self._resolve(coordinates)
            with ThreadPoolExecutor(PARALLEL) as pool:
                jars = [Path(jar) for jar in pool.map(lambda artifact: artifact.resolve(), artifacts)]
        except (RequestException, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise LocalError(f"the download of {title} failed: {reason}; run it again to continue") from error
        damaged = [jar for jar in jars if not zipfile.is_zipfile(jar)]
        for jar in damaged:
            jar.unlink()
        if damaged:
            names = ", ".join(jar.name for jar in damaged)
            raise LocalError(f"the download of {title} is damaged ({names}): run it again")
        return jars

    def _resolve(self, coordinates: Sequence[str]) -> list[Any]:
        # `raw`: the dependency management of one coordinate must not choose the versions of the others.
        wanted = [replace(Coordinate.parse(text), scope="compile", raw=True) for text in coordinates]
        inputs, transitive = self._context.resolver.resolve([self._context.create_dependency(one) for one in wanted])
        return [one.artifact for one in (*inputs, *transitive) if one.scope in {"compile", "runtime"}]

    @contextmanager
    def _progress(self, filename: str, _size: int) -> Iterator[Callable[[int], None]]:
        def arrived(count: int) -> None:
            with self._lock:
                self.megabytes += count / MEGABYTE
                now = time.monotonic()
                if self.megabytes - self._told >= TELL_EVERY_MB or now - self._told_at >= TELL_EVERY_S:
                    self._told, self._told_at = self.megabytes, now
                    self._report(f"  {self.megabytes:.1f} MB ({filename})")

        yield arrived


class _MarkingResolver(PythonResolver):
    """Marks the file that it writes, and retries if the connection breaks."""

    def download(self, artifact: Any) -> Path | None:
        target = Path(artifact.cached_path)
        marker = target.with_name(target.name + MARKER)
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                done: Path | None = super().download(artifact)
            except (ConnectionFailure, Timeout, ChunkedEncodingError):
                target.unlink(missing_ok=True)
                if attempt == ATTEMPTS:
                    raise
                time.sleep(PAUSE_S * 2**attempt)
            else:
                break
        marker.unlink()
        return done


def _marked(marker: Path) -> Path:
    return marker.with_name(marker.name.removesuffix(MARKER))
