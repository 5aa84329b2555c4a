"""`parley watch`: the watcher of workers in another container."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from app.commands.terminal import WrongUseError, plain_failures, settings_of_terminal
from app.watch.post import log_as
from app.watch.sidecar import Sidecar, SocketInUseError


@click.command(short_help="Leave the group for workers that die, from beside them.")
@click.argument("socket", required=False, type=click.Path(path_type=Path))
def watch(socket: Path | None) -> None:
    """Listen at SOCKET, by default PARLEY_WATCH, and leave the group for each worker that hangs up without a goodbye.

    For pods, where a worker's container dies as a whole. Workers name the same path in PARLEY_WATCH.
    """
    settings = settings_of_terminal()
    if socket is None and "/" not in settings.watch:
        raise WrongUseError("PARLEY_WATCH has to be the path of a socket")
    path = socket or Path(settings.watch)
    log_as(settings.log_format)
    with plain_failures():
        try:
            sidecar = Sidecar(settings.cluster, settings.group, settings.session_timeout_s)
            asyncio.run(sidecar.serve(path))
        except SocketInUseError as error:
            raise WrongUseError(str(error)) from None
        except OSError as error:
            raise WrongUseError(f"{path}: {error.strerror or error}") from None
