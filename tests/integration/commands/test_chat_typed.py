"""`parley chat` at a terminal, against a scripted worker."""

from __future__ import annotations

from pathlib import Path

from app.settings import Settings
from tests.integration.commands.typed import typed
from tests.integration.scripted_worker import scripted_worker

CHAT = ("chat", "--user", "ann")
CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x10"


async def test_a_talk_with_its_commands(settings: Settings, tmp_path: Path) -> None:
    async with scripted_worker(settings) as worker, typed(settings, tmp_path, *CHAT) as chat:
        await chat.until("> ")
        chat.type("one \\\n")
        await chat.until(". ")
        chat.type("two\n")
        await chat.until("one two \r\n> ")
        chat.type("/new other\n")
        await chat.until("[conversation other]")
        chat.type("//etc is a folder\n")
        await chat.until("/etc is a folder \r\n> ")
        chat.type("/what\n")
        await chat.until("[unknown command /what; /help lists the commands]")
        chat.type("/help\n")
        await chat.until("/search WORDS")
        chat.type("/quit\n")
        assert await chat.ended() == 0
    assert [(asked.prompt, asked.conversation_id) for asked in worker.requests] == [
        ("one \ntwo", "default"),
        ("/etc is a folder", "other"),
    ]


async def test_ctrl_c_and_stop_end_the_answer_and_not_the_program(settings: Settings, tmp_path: Path) -> None:
    async with scripted_worker(settings) as worker, typed(settings, tmp_path, *CHAT) as chat:
        await chat.until("> ")
        for end in (CTRL_C, "/stop\n"):
            chat.type("say wait\n")
            await chat.until("say wait\r\n")
            await chat.until("say ")
            chat.type(end)
            await chat.until("[cancelled]")
            await chat.until("> ")
        chat.type(f"never sent{CTRL_C}")
        await chat.until("[Ctrl-D or /quit exits]")
        await chat.until("> ")
        chat.type(CTRL_D)
        assert await chat.ended() == 0
    assert [asked.prompt for asked in worker.requests] == ["say wait"] * 2
    assert len(worker.controls) == 2


async def test_what_is_typed_while_an_answer_comes_is_asked_afterwards(settings: Settings, tmp_path: Path) -> None:
    async with scripted_worker(settings) as worker, typed(settings, tmp_path, *CHAT) as chat:
        await chat.until("> ")
        chat.type("say wait\n")
        await chat.until("say wait\r\n")
        await chat.until("say ")
        chat.type("later\n")
        chat.type("/stop\n")
        await chat.until("[cancelled]")
        await chat.until("later \r\n")
        chat.type("/quit\n")
        assert await chat.ended() == 0
    assert [asked.prompt for asked in worker.requests] == ["say wait", "later"]


async def test_what_is_typed_for_now_is_asked_while_the_answer_comes(settings: Settings, tmp_path: Path) -> None:
    async with scripted_worker(settings) as worker, typed(settings, tmp_path, *CHAT) as chat:
        await chat.until("> ")
        chat.type("/now\n")
        await chat.until("[usage: /now TEXT]")
        chat.type("say wait\n")
        await chat.until("say wait\r\n")
        await chat.until("say ")
        chat.type("later\n")
        chat.type("/now this wait\n")
        await chat.until("[cancelled]")
        await chat.until("> this wait")
        await chat.until("this ")
        chat.type("/instead that\n")
        await chat.until("[cancelled]")
        await chat.until("that ")
        await chat.until("later \r\n")
        chat.type("/quit\n")
        assert await chat.ended() == 0
    asked = [(one.prompt, one.while_busy.value) for one in worker.requests]
    assert asked == [("say wait", "queue"), ("this wait", "interrupt"), ("that", "rollback"), ("later", "queue")]
    assert worker.controls == []


async def test_the_history_is_there_the_next_time_and_nobody_elses(settings: Settings, tmp_path: Path) -> None:
    async with scripted_worker(settings) as worker:
        async with typed(settings, tmp_path, *CHAT) as chat:
            await chat.until("> ")
            chat.type("say it again\n")
            await chat.until("say it again \r\n> ")
            chat.type(CTRL_D)
            assert await chat.ended() == 0
        async with typed(settings, tmp_path, *CHAT) as chat:
            await chat.until("> ")
            chat.type(f"{UP}\n")
            await chat.until("say it again \r\n> ")
            chat.type("/quit\n")
            assert await chat.ended() == 0
    assert [asked.prompt for asked in worker.requests] == ["say it again"] * 2
    assert (tmp_path / "parley" / "history").stat().st_mode & 0o077 == 0
