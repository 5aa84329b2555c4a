"""`parley local`: Kafka and Milvus on this machine."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.commands.terminal import WrongUseError, plain_failures, warn_of_unknown_settings
from app.kafka.topics import TopicsError
from app.local.report import LocalError, timed
from app.settings import UnknownSettingWarning
from app.settings.sources import SettingsError

if TYPE_CHECKING:
    from app.local.instance import LocalInstance

PORT = click.IntRange(0, 65535)
PORT_HELP = "Port of a running part, else the previous port, else a free one. 0: a new free one."

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path(".parley/local"),
    show_default=True,
    help="Folder of the instance: data, logs, ports. The settings go to .parley/local.env wherever it is.",
)


@click.group()
def local() -> None:
    """Run Kafka and Milvus on this machine, in the background."""
    warn_of_unknown_settings()


@local.command()
@data_dir_option
@click.option("--kafka-port", type=PORT, help=PORT_HELP)
@click.option("--milvus-port", type=PORT, help=PORT_HELP)
def up(data_dir: Path, kafka_port: int | None, milvus_port: int | None) -> None:
    """Start Kafka and Milvus, create the topics, and write .parley/local.env.

    Commands in this directory then use this instance. The command reports it if the file had another's settings.
    """
    with local_failures():
        instance = local_instance(data_dir)
        addresses = instance.up(kafka_port, milvus_port, timed(click.echo))
    for name, value in addresses.as_settings().items():
        click.echo(f"{name}={value}")
    click.echo(f"settings written to {instance.env_file.path}; data and logs in {instance.folder}")


@local.command()
@data_dir_option
def down(data_dir: Path) -> None:
    """Stop Kafka and Milvus and wait until they have exited; the data stays.

    If .parley/local.env belongs to this instance, it is removed; if it replaced the settings of an instance that still
    runs, they are restored.
    """
    with local_failures():
        if not local_instance(data_dir).down(timed(click.echo)):
            click.echo(f"nothing is running in {data_dir}")


@local.command()
@data_dir_option
def status(data_dir: Path) -> None:
    """Show what is running; exit code 1 unless everything is."""
    with local_failures():
        parts = local_instance(data_dir).status()
    if not parts:
        click.echo(f"nothing in {data_dir} yet: start it with `parley local up`")
    for part in parts:
        state = "is down" if part.pid is None else f"is up, pid {part.pid}"
        if part.pid is not None and not part.answers:
            state = f"does not answer, pid {part.pid}"
        click.echo(f"{part.name} {state}: {part.where}")
    sys.exit(0 if parts and all(part.answers for part in parts) else 1)


def local_instance(folder: Path, *, owns_env_file: bool = True) -> LocalInstance:
    try:
        from app.local.instance import LocalInstance  # needs packages of an extra
    except ModuleNotFoundError as error:
        raise WrongUseError(f"the package {error.name} is missing: install Parley with its extra `local`") from None
    return LocalInstance(folder, owns_env_file=owns_env_file)


@contextmanager
def local_failures() -> Iterator[None]:
    """Report a failure of a local part in one line, with its exit code."""
    with plain_failures(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownSettingWarning)  # the command has printed them
        try:
            yield
        except LocalError as error:
            failure = click.ClickException(str(error))
            failure.exit_code = error.exit_code
            raise failure from None
        except (SettingsError, TopicsError) as error:
            raise WrongUseError(str(error)) from None
