"""`parley export`: turns of those who consented, as lines that trainers read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from app.private.value import PrivateValue
from app.settings import Settings
from models.interface.generation import FinishReason
from tables.erasures import Scope
from tests.integration.commands.stored import turn, write
from tests.integration.commands.terminal import Ended, Terminal

NOW = time.time_ns() // 1_000_000
EVERYBODY = '[tenants."*"]\ntraining = true\n'


async def exported(terminal: Terminal, policy: str, *arguments: str) -> tuple[list[Any], Ended]:
    file = terminal.folder / "policy.toml"
    file.write_text(policy)
    done = await terminal.having(policy=str(file)).run("export", *arguments)
    assert done.code == 0, done.err
    return [json.loads(line)["messages"] for line in done.out.splitlines()], done


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


async def test_a_line_is_a_conversation_or_a_turn(settings: Settings, terminal: Terminal) -> None:
    await write(
        settings,
        turn("ann", "1", "Hi", "Hello", NOW - 3),
        turn("ann", "2", "Aside", "Well", NOW - 2, conversation_id="other"),
        turn("ann", "3", "Bye", "See you", NOW - 1),
    )
    lines, _ = await exported(terminal, EVERYBODY)
    assert lines == [said("Hi", "Hello", "Bye", "See you"), said("Aside", "Well")]
    lines, _ = await exported(terminal, EVERYBODY, "--by", "turn")
    assert lines == [said("Hi", "Hello"), said("Aside", "Well"), said("Bye", "See you")]
    lines, _ = await exported(terminal, EVERYBODY, "--model", "small")
    assert lines == []
    lines, done = await exported(terminal, EVERYBODY, "--model", "big", "--until", "1d", "--since", "2d")
    assert (lines, done.err) == ([], "0 turns in 0 lines\n")


async def test_only_those_who_consented_are_exported(settings: Settings, terminal: Terminal, tmp_path: Path) -> None:
    await write(
        settings,
        turn("acme/ann", "1", "of acme", "a", NOW, tenant="acme"),
        turn("acme/bob", "1", "of bob", "a", NOW, tenant="acme"),
        turn("shop/ann", "1", "of shop", "a", NOW, tenant="shop"),
        turn("ann", "1", "of nobody", "a", NOW),
    )
    acme = "[tenants.acme]\ntraining = true\n"
    lines, done = await exported(terminal, acme)
    assert {one["content"] for line in lines for one in line} == {"of acme", "of bob", "a"}
    assert done.err == "2 turns in 2 lines; left out: 2 without consent\n"
    lines, _ = await exported(terminal, f"{EVERYBODY}[tenants.acme]\nrequests_per_min = 9\n")
    assert {line[0]["content"] for line in lines} == {"of shop", "of nobody"}
    (tmp_path / "users").write_text("acme/bob\nann\n")
    lines, _ = await exported(terminal, acme, "--users", str(tmp_path / "users"))
    assert [line[0]["content"] for line in lines] == ["of bob"]


@pytest.mark.parametrize("policy", ["", "[tenants.acme]\nrequests_per_min = 9\n"])
async def test_without_consent_nothing_is_exported(terminal: Terminal, tmp_path: Path, policy: str) -> None:
    (tmp_path / "policy.toml").write_text(policy)
    done = await terminal.having(policy=str(tmp_path / "policy.toml")).run("export")
    assert (done.code, done.out) == (2, "")
    assert done.err == "Error: no tenant has consented: the policy file has no `training = true` in [tenants.NAME]\n"


async def test_erased_turns_are_not_exported_also_while_no_worker_has_erased_them(
    settings: Settings, terminal: Terminal
) -> None:
    await write(
        settings,
        turn("ann", "1", "erased", "a", NOW - 1000),
        turn("ann", "2", "since then", "a", NOW + 1),
        turn("bob", "1", "being erased", "a", NOW - 1000),
        turn("eve", "1", "not stored", "", NOW),
        turn("eve", "2", "", "", NOW),
        turn("joe", "1", "kept", "a", NOW - 1000),
        turn("joe", "2", "erased", "a", NOW - 1000, conversation_id="c"),
        turn("joe", "3", "begun anew", "a", NOW + 1, conversation_id="c"),
        turn("joe", "4", "being erased", "a", NOW - 1000, conversation_id="d"),
        erased={Scope("ann"): NOW, Scope("joe", "c"): NOW},
        erasing=(Scope("bob"), Scope("joe", "d")),
    )
    lines, _ = await exported(terminal, EVERYBODY, "--by", "turn")
    prompts = {line[0]["content"] for line in lines}
    assert prompts == {"since then", "kept", "begun anew"}


async def test_answers_that_teach_nothing_are_left_out(settings: Settings, terminal: Terminal) -> None:
    await write(
        settings,
        turn("ann", "1", "cut", "a", NOW, finish_reason=FinishReason.LENGTH),
        turn("ann", "2", "blocked", "", NOW, finish_reason=FinishReason.FILTERED),
        turn("ann", "3", "again", "a", NOW, cached="0"),
        turn("ann", "4", "whole", "a", NOW),
    )
    lines, done = await exported(terminal, EVERYBODY)
    assert lines == [said("whole", "a")]
    left_out = "2 that did not end in `stop`, 1 that repeat another answer"
    assert done.err == f"1 turns in 1 lines; left out: {left_out}\n"


async def test_private_values_that_were_found_are_placeholders(settings: Settings, terminal: Terminal) -> None:
    value = PrivateValue("EMAIL_ADDRESS", "ann@example.org")
    await write(
        settings,
        turn("ann", "1", "I am ann@example.org", "Hello ann@example.org", NOW, private=(value,)),
        turn("ann", "2", "Who am I?", "You are ann@example.org", NOW, private=(value,)),
    )
    ((first, second, _, fourth),), done = await exported(terminal, EVERYBODY)
    assert "ann@example.org" not in done.out
    placeholder = first["content"].removeprefix("I am ")
    assert placeholder.startswith("<EMAIL_ADDRESS_")
    assert (second["content"], fourth["content"]) == (f"Hello {placeholder}", f"You are {placeholder}")


async def test_private_values_are_looked_for_where_nothing_has_looked_yet(
    settings: Settings, terminal: Terminal
) -> None:
    await write(settings, turn("ann", "1", "I am ann@example.org", "Hello", NOW, private=None))
    masking = f'[guard]\npii = "mask"\npii_entities = ["EMAIL_ADDRESS"]\n{EVERYBODY}'
    ((first, _),), done = await exported(terminal, masking)
    assert "ann@example.org" not in done.out
    assert first["content"].startswith("I am <EMAIL_ADDRESS_")


async def test_what_a_later_version_has_replaced_is_left_out(settings: Settings, terminal: Terminal) -> None:
    await write(
        settings,
        turn("ann", "1", "first", "a", NOW - 9),
        turn("ann", "2", "second", "a", NOW - 8),
        turn("ann", "3", "third", "a", NOW - 7),
        turn("bob", "2", "of bob", "a", NOW - 7),
        turn("ann", "e", "edited", "b", NOW - 1, conversation_id="default~1", replaces=("2", "3")),
        turn("ann", "f", "erased", "b", NOW - 1, conversation_id="default~2", replaces=("1",)),
        turn("ann", "g", "stopped", "", NOW - 1, conversation_id="default~3", replaces=("1",)),
        erased={Scope("ann", "default~2"): NOW},
    )
    lines, done = await exported(terminal, EVERYBODY, "--until", "0h")
    assert sorted(lines, key=str) == sorted([said("first", "a"), said("edited", "b"), said("of bob", "a")], key=str)
    assert "2 that were replaced" in done.err
    lines, _ = await exported(terminal, EVERYBODY, "--include-replaced")
    assert {one["content"] for line in lines for one in line} >= {"first", "second", "third", "edited"}
