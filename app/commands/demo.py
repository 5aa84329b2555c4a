"""`parley demo`: the whole system on this machine, with two scripted users."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from app.commands.local import local_failures, local_instance
from app.commands.terminal import settings_of_terminal
from app.local.report import timed


@click.command(short_help="Two users chat through a real Kafka on this machine.")
@click.option("--once", is_flag=True, help="Exit after the script instead of staying up.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path(".parley/demo"),
    show_default=True,
    help="Data and logs of Kafka, Milvus and the worker.",
)
def demo(once: bool, data_dir: Path) -> None:
    """Start Kafka, Milvus, a worker and a gateway, let two users chat, and search their history.

    Ctrl-C stops everything.
    """
    with local_failures():
        settings = settings_of_terminal()
        instance = local_instance(data_dir, owns_env_file=False)
        # They need packages of an extra.
        from app.demo.script import DemoError
        from app.demo.show import Show

        # A shell starts background jobs with SIGINT ignored; then only SIGKILL would end it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        show = Show(settings, instance, timed(click.echo))
        try:
            show.run(stay=not once)
        except DemoError as error:
            raise click.ClickException(str(error)) from None
        except KeyboardInterrupt:
            sys.exit(1 if once and not show.told_all else 0)
