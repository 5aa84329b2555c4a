"""Maven artifacts with `jgo`, without Maven and without a Java."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from jgo.maven import MavenContext, PythonResolver
from requests import RequestException
from requests.exceptions import ChunkedEncodingError, Timeout
from requests.exceptions import ConnectionError as ConnectionFailure

from app.local.report import LocalError, Report

ATTEMPTS = 4
PAUSE_S = 0.5
PARALLEL = 6
REPORT_EVERY_MB = 5
REPORT_EVERY_S = 3.0
MEGABYTE = 1e6


class MavenDownload:
    """Downloads into `folder`, at the paths that the artifacts have in a repository."""

    def __init__(self, folder: Path, repository: str | None, report: Report) -> None:
        self.megabytes = 0.0
        self._reported = 0.0
        self._reported_at = time.monotonic()
        self._folder = folder
        self._report = report
        self._lock = Lock()
        self._context = MavenContext(
            repo_cache=folder,
            remote_repos=None if repository is None else {"central": repository},
            resolver=_PatientResolver(progress_callback=self._progress),
        )

    def fetch(self, title: str, jars: Sequence[Path]) -> None:
        """Raises `LocalError`; what was whole by then stays."""
        try:
            with ThreadPoolExecutor(PARALLEL) as pool:
                list(pool.map(self._fetch, jars))
        except (RequestException, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise LocalError(f"the download of {title} failed: {reason}; run it again to continue") from error

    def _fetch(self, jar: Path) -> None:
        *group, name, version, _ = jar.relative_to(self._folder).parts
        self._context.project(".".join(group), name).at_version(version).artifact().resolve()

    @contextmanager
    def _progress(self, filename: str, _size: int) -> Iterator[Callable[[int], None]]:
        def arrived(count: int) -> None:
            with self._lock:
                self.megabytes += count / MEGABYTE
                now = time.monotonic()
                if self.megabytes - self._reported >= REPORT_EVERY_MB or now - self._reported_at >= REPORT_EVERY_S:
                    self._reported, self._reported_at = self.megabytes, now
                    self._report(f"  {self.megabytes:.1f} MB ({filename})")

        yield arrived


class _PatientResolver(PythonResolver):
    """Retries if the connection breaks."""

    def download(self, artifact: Any) -> Path | None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                done: Path | None = super().download(artifact)
            except (ConnectionFailure, Timeout, ChunkedEncodingError):
                Path(artifact.cached_path).unlink(missing_ok=True)
                if attempt == ATTEMPTS:
                    raise
                time.sleep(PAUSE_S * 2**attempt)
            else:
                break
        return done
