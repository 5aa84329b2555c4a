"""One rule for all commands: 0 done, 1 failed at work, 2 wrong use; and one line that says what to do."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from app.commands import parley
from app.process.process_end import ExitCode

DOCUMENT = Path(__file__).parents[3] / "docs" / "commands.md"
RECORD = '{"user_id": "ann", "prompt": "p"}\n'
NEEDS_KAFKA = [
    "topics create",
    "topics list",
    "send records.jsonl",
    "tail tokens",
    "chat --user ann hi",
    "cancel r1 --user ann",
    "erase ann --yes",
    "usage",
    "waits --count",
    "approvals",
    "approve call_1",
    "experiment tone",
    "export --requests default",
    "send records.jsonl --at-once 2",
    "audit show",
    "audit verify",
]


@pytest.fixture(autouse=True)
def _away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's settings, and no broker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARLEY_BROKER", "kafka://127.0.0.1:1")
    (tmp_path / "records.jsonl").write_text(RECORD)


def ended(arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(parley, arguments.split())
    assert result.stderr.count("\n") == 1, result.output
    return result.exit_code, result.stderr


@pytest.mark.parametrize("arguments", NEEDS_KAFKA)
def test_a_broker_that_is_away_has_failed(arguments: str) -> None:
    code, line = ended(arguments)
    assert (code, "no Kafka answers at 127.0.0.1:1" in line) == (ExitCode.FAILED, True), line


@pytest.mark.parametrize("arguments", NEEDS_KAFKA)
def test_a_wrong_setting_is_wrong_use(arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_PARTITIONS", "many")
    code, line = ended(arguments)
    assert (code, "PARLEY_PARTITIONS=many" in line) == (ExitCode.WRONG_USE, True), line


@pytest.mark.parametrize("arguments", NEEDS_KAFKA)
@pytest.mark.parametrize("name", ["CA", "CERT"])
def test_a_tls_file_that_is_none_is_wrong_use(
    arguments: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key.pem").write_text("no certificate\n")
    monkeypatch.setenv("PARLEY_KAFKA_TLS", "true")
    monkeypatch.setenv(f"PARLEY_KAFKA_{name}_FILE", "key.pem")
    code, line = ended(arguments)
    assert (code, f"PARLEY_KAFKA_{name}_FILE=key.pem" in line) == (ExitCode.WRONG_USE, True), line


def test_a_port_in_use_is_wrong_use_before_kafka_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, line = ended(f"gateway --port {port}")
    assert (code, line) == (
        ExitCode.WRONG_USE,
        f"Error: port {port} is in use: choose another with --port or PARLEY_GATEWAY_PORT\n",
    )


def test_an_address_of_another_machine_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_GATEWAY_API_KEYS", "a-key-of-sixteen-characters=ann")
    code, line = ended("gateway --host 192.0.2.1")
    assert (code, "PARLEY_GATEWAY_HOST" in line) == (ExitCode.WRONG_USE, True), line


def test_a_gateway_waits_for_kafka_as_a_worker_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.kafka.patience.START_WAIT_S", 0.2)
    result = CliRunner().invoke(parley, ["gateway", "--port", "0"])
    first, last = result.stderr.splitlines()
    assert result.exit_code == ExitCode.FAILED
    assert first == f"{last.removeprefix('Error: ')}; waiting for it for 1 s"


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")


COMMANDS = {name: command for name, command in commands(parley) if name != "worker"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelt_option_is_wrong_use(name: str) -> None:
    code, line = ended(f"{name} --no-such-option")
    assert code == ExitCode.WRONG_USE
    assert f"parley {name} --help" in line


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelt_command_gets_a_suggestion(name: str) -> None:
    *path, last = name.split()
    code, line = ended(" ".join([*path, last + "x"]))
    assert code == ExitCode.WRONG_USE
    assert re.search(rf"Did you mean .*\b{last}\b", line), line


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_at_h(name: str) -> None:
    shown = CliRunner().invoke(parley, [*name.split(), "-h"])
    assert shown.exit_code == ExitCode.DONE
    assert shown.stdout.startswith(f"Usage: parley {name} ")


SHORT = {"--user": "-u", "--conversation": "-c", "--limit": "-n", "--count": "-n"}


def test_an_option_has_the_same_letter_everywhere() -> None:
    options: list[Any] = [
        one for command in COMMANDS.values() for one in command.params if isinstance(one, click.Option)
    ]
    for option in options:
        for long in set(option.opts) & set(SHORT):
            assert SHORT[long] in option.opts, option.opts
        for short in set(option.opts) & set(SHORT.values()):
            assert short in {SHORT.get(long) for long in option.opts}, option.opts


def test_the_document_has_every_code() -> None:
    told = re.findall(r"^\| (\d) \|", DOCUMENT.read_text(), re.MULTILINE)
    assert told == [str(int(code)) for code in ExitCode]
