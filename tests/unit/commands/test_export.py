"""Whose consent a file of users states, and what a cancelled export says."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from importlib import import_module

import pytest

from app.commands.export import listed_users
from app.commands.stored_turns import StoredTurns, TurnFilter
from app.commands.terminal import WrongUseError
from app.policy.file import NO_POLICY
from app.settings import Settings

command = import_module("app.commands.export")


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("nina\nacme/bob\n\n", {"nina", "acme/bob"}),
        ("nina\r\nacme/bob", {"nina", "acme/bob"}),
        ("\ufeffnina\n", {"nina"}),
        ("nina \n\u00a0bob\n", {"nina ", "\u00a0bob"}),
        ("bob\rnina\n", {"bob\rnina"}),
        ("bob\u2028nina\n", {"bob\u2028nina"}),
        ("", set()),
    ],
)
def test_each_line_is_one_id_as_it_stands(text: str, users: set[str]) -> None:
    assert listed_users(io.BytesIO(text.encode())) == users


def test_a_file_that_is_not_utf8_is_wrong_use() -> None:
    with pytest.raises(WrongUseError, match="UTF-8"):
        listed_users(io.BytesIO(b"nina\xff\n"))


def test_an_export_that_is_cancelled_says_that_its_file_is_incomplete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def no_secrets(_settings: object) -> dict[int, bytes]:
        return {}

    async def hangs(*_: object) -> AsyncIterator[StoredTurns]:
        yield StoredTurns(0, (), frozenset())
        await asyncio.Event().wait()

    async def cancelled() -> None:
        asyncio.get_running_loop().call_later(0.05, asyncio.current_task().cancel)  # type: ignore[union-attr]
        consent = command.Consent(NO_POLICY, None)
        await command._export(Settings(_env_file=None), TurnFilter(0), consent, None, io.BytesIO(), by_turn=False)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "guard_secrets", no_secrets)
    monkeypatch.setattr(command, "stored_turns", hangs)
    with pytest.raises(SystemExit) as ended:
        asyncio.run(cancelled())
    assert ended.value.code == 1
    assert capsys.readouterr().err == "stopped after 0 lines: what has been written is incomplete\n"
