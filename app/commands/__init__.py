"""The command line: `parley COMMAND`.

Parley's commands are imported when they are called, so that `parley chat` imports neither Faust nor torch. Packages
beside Parley bring others: the entry points `parley.commands`. `parley worker` is `faust -A app worker`.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoints, entry_points
from typing import Any, NoReturn

import click

from app.process.process_end import ExitCode, end_process, exit_at_signal

_OWN = {
    "audit": "app.commands.audit:audit",
    "cancel": "app.commands.control:cancel",
    "chat": "app.commands.chat:chat",
    "demo": "app.commands.demo:demo",
    "erase": "app.commands.control:erase",
    "experiment": "app.commands.experiment:experiment",
    "export": "app.commands.export:export",
    "gateway": "app.commands.gateway:gateway",
    "local": "app.commands.local:local",
    "model": "app.commands.model:model",
    "plugins": "app.commands.plugins:plugins",
    "policy": "app.commands.policy:policy",
    "schema": "app.commands.schema:schema",
    "search": "app.commands.search:search",
    "send": "app.commands.send:send",
    "settings": "app.commands.settings:settings",
    "tail": "app.commands.tail:tail",
    "topics": "app.commands.topics:topics",
    "usage": "app.commands.usage:usage",
    "waits": "app.commands.waits:waits",
    "approvals": "app.commands.approvals:approvals",
    "approve": "app.commands.approvals:approve",
    "reject": "app.commands.approvals:reject",
    "watch": "app.commands.watch:watch",
}
_PACKAGES = {"quantize": "deploy/packages/quantize"}
"""Commands that a package of this repository brings."""
_NO_COMMAND = re.compile(r"No such command '(.*)'")


class _WrongUseError(click.ClickException):
    exit_code = ExitCode.WRONG_USE


class _Commands(click.Group):
    """Report wrong usage in one line, where Click prints three or four."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except KeyboardInterrupt:
            sys.exit(0)
        except click.UsageError as error:
            raise _in_one_line(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(0)
        except click.UsageError as error:
            raise _in_one_line(error) from None

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted({*_OWN, *_installed().names, "worker"})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name in _OWN:
            module, name = _OWN[cmd_name].split(":")
            with _interruptible():
                command: click.Command = getattr(import_module(module), name)
            return command
        return worker if cmd_name == "worker" else _of_package(cmd_name)


def _installed() -> EntryPoints:
    return entry_points(group="parley.commands")


def _of_package(name: str) -> click.Command | None:
    for found in _installed().select(name=name):
        try:
            with _interruptible():
                command: click.Command = found.load()
        except (ImportError, AttributeError) as error:
            raise _WrongUseError(f"{found.value} cannot be loaded for the command {name}: {error}") from None
        return command
    return None


@contextmanager
def _interruptible() -> Iterator[None]:
    """While modules are imported, Ctrl-C ends the process at once. A `KeyboardInterrupt` may come where a library, as
    pydantic, prints it and goes on.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _in_one_line(error: click.UsageError) -> click.ClickException:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error  # it prints the help
    path = "parley" if error.ctx is None else error.ctx.command_path
    return _WrongUseError(f"{' '.join(error.format_message().split())}{_meant(error)} (see `{path} --help`)")


def _meant(error: click.UsageError) -> str:
    """The commands that a misspelt one may mean, which Click has for options, or the package that has it."""
    misspelt = _NO_COMMAND.search(error.message)
    if misspelt is None or error.ctx is None or not isinstance(error.ctx.command, click.Group):
        return ""
    if folder := _PACKAGES.get(misspelt[1]):
        return f" It is in a package of its own: pip install {folder}"
    near = get_close_matches(misspelt[1], error.ctx.command.list_commands(error.ctx))
    return f" Did you mean {' or '.join(near)}?" if near else ""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="parley", message="parley %(version)s")
def parley() -> None:
    """Kafka Streams for conversations: durable, ordered, replayable chat with live tokens."""


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def worker(arguments: tuple[str, ...]) -> None:
    """Run a worker; the options are those of `faust worker`."""
    from app import app  # builds the Faust application

    # With Faust, -h is the host of the web server.
    level = [] if any(one.startswith(("-l", "--loglevel")) for one in arguments) else ["--loglevel", "info"]
    sys.argv[1:] = ["worker", *(["--help"] if arguments == ("-h",) else [*level, *arguments])]
    app.main()


def main() -> NoReturn:
    signal.signal(signal.SIGTERM, exit_at_signal)
    try:
        "".join(sys.argv).encode()
        parley(prog_name="parley")
        code: object = 0
    except SystemExit as end:
        code = end.code
    except UnicodeEncodeError:
        sys.stderr.write("Error: an argument is not UTF-8\n")
        code = ExitCode.WRONG_USE.value
    end_process(code if isinstance(code, int) else ExitCode.FAILED if code else ExitCode.DONE)
