"""`parley chat`: chat in the terminal, over Kafka."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import datetime

import click
import msgspec

from app.chat_session import ChatSession
from app.commands.background import BackgroundLoop
from app.commands.chat_commands import is_command, obey, prompt_now
from app.commands.chat_lines import Lines
from app.commands.terminal import WrongUseError, note, plain_failures, settings_of_terminal
from app.kafka.clients import KafkaUnusableError
from app.process.printable import printable, printable_json
from app.reader import Following, Update
from app.wire.error import ErrorCode
from app.wire.event import ATTEMPT, PLAN, WAITING, ErrorInfo, EventType, Notice
from app.wire.ids import is_conversation_id, is_text, is_user_id
from app.wire.request import DEFAULT_CONVERSATION, WhileBusy
from models.interface.generation import FinishReason

PATIENCE_S = 15.0


@click.command()
@click.option("-u", "--user", required=True, help="User id; the key of the records.")
@click.option("-c", "--conversation", default=DEFAULT_CONVERSATION, show_default=True, help="Conversation id.")
@click.option("--model", help="Which of the served models answers.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer.")
@click.option(
    "--while-busy",
    type=click.Choice([word.value for word in WhileBusy]),
    default=WhileBusy.QUEUE.value,
    show_default=True,
    help="What becomes of earlier answers of the conversation that are under way.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the events of `tokens`, one JSON object per line.")
@click.argument("prompt", required=False)
def chat(
    user: str,
    conversation: str,
    model: str | None,
    max_tokens: int | None,
    while_busy: str,
    as_json: bool,
    prompt: str | None,
) -> None:
    """Send PROMPT and print the answer as it is generated.

    Without PROMPT, start an interactive session; type /help for its commands. Input from a pipe or a file is sent line
    by line, also lines that begin with a slash.

    Ctrl-C stops a running answer; pressed again before the answer has ended, it exits. An interactive session ends with
    Ctrl-D or /quit.
    """
    if not is_user_id(user):
        raise WrongUseError("--user must have 1-128 characters")
    if not is_conversation_id(conversation):
        raise WrongUseError("--conversation must have at most 256 characters")
    if prompt is not None and not prompt:
        raise WrongUseError("PROMPT is empty")
    session = ChatSession(settings_of_terminal(), user, conversation, max_tokens, model)
    with plain_failures(), BackgroundLoop() as loop:
        try:
            loop.wait(session.start())
            failed = TerminalChat(loop, session, WhileBusy(while_busy), as_json=as_json).go_on(prompt)
        except KeyboardInterrupt:
            note("\ninterrupted before the end of the answer")
            sys.exit(0)
        finally:
            loop.wait(session.stop())
    sys.exit(1 if failed else 0)


class TerminalChat:
    def __init__(self, loop: BackgroundLoop, session: ChatSession, while_busy: WhileBusy, *, as_json: bool) -> None:
        self._loop = loop
        self._session = session
        self._while_busy = while_busy
        self._asked: deque[tuple[str, Future[tuple[str, Following]]]] = deque()
        self._show = show_json if as_json else show
        self._lines = Lines()

    def go_on(self, prompt: str | None) -> bool:
        """Send the prompt, or each typed prompt. Returns whether the last answer was an error."""
        prompts: Iterable[str] = self._lines if prompt is None else [prompt]
        is_typed = prompt is None and self._lines.is_terminal
        error: ErrorInfo | None = None
        for one in prompts:
            now = prompt_now(one) if is_typed else None
            if now is None and is_typed and is_command(one):
                if not obey(one, self._session, self._loop):
                    return False
                continue
            text = one[1:] if is_typed and one.startswith("//") else one
            error = self._answer(*(now or (text, self._while_busy)), is_typed=is_typed)
        return error is not None and not is_typed

    def _answer(self, prompt: str, rule: WhileBusy, *, is_typed: bool) -> ErrorInfo | None:
        """Ask, and print the answer, and those to what was asked at once meanwhile."""
        if is_text(prompt):
            error = self._follow(*self._loop.wait(self._session.ask(prompt, rule)), is_typed=is_typed)
        else:
            error = ErrorInfo(ErrorCode.INVALID_REQUEST, "the line is not UTF-8")
        while True:
            if error is not None:
                note(f"Error: {error.message} ({error.code})")
            if not self._asked:
                return error
            prompt, asked = self._asked.popleft()
            note(f"> {prompt}")
            error = self._follow(*asked.result(), is_typed=is_typed)

    def _follow(self, request_id: str, following: Following, *, is_typed: bool) -> ErrorInfo | None:
        def cancel() -> None:
            self._loop.begin(self._cancel(request_id))
            note("\n[cancelling; press Ctrl-C again to exit at once]")

        def obey_now(line: str) -> bool:
            if line == "/stop":
                cancel()
            elif (now := prompt_now(line)) is not None and is_text(now[0]):
                self._asked.append((now[0], self._loop.begin(self._session.ask(*now))))
            else:
                return False
            return True

        def read_input() -> None:
            self._lines.read_ahead(obey_now)

        return self._loop.wait(self._print(following), on_interrupt=cancel, meanwhile=read_input if is_typed else None)

    async def _cancel(self, request_id: str) -> None:
        try:
            await self._session.cancel(request_id)
        except KafkaUnusableError as error:
            note(f"[the answer could not be cancelled: {error}]")

    async def _print(self, following: Following) -> ErrorInfo | None:
        hint = asyncio.get_running_loop().call_later(
            PATIENCE_S, note, "[no answer yet; is a worker running? `faust -A app worker -l info`]"
        )
        error = None
        try:
            async for update in following:
                hint.cancel()
                self._show(update)
                error = update.event.error
        finally:
            hint.cancel()
            following.close()
        return error


def show(update: Update) -> None:
    """Print what the update adds, including the end."""
    event = update.event
    if event.notice is not None:
        if not _is_for_programs(event.notice):
            note(f"[{printable(_words_of(event.notice))}]")
        return
    if update.cut is not None:
        note("\n[part of the answer was retracted; it is now]")
        _print(update.answer.text)
    else:
        if update.gap:
            note(f"[{update.gap} tokens are missing here]")
        _print_reasoning(update)
        _print(update.text)
    if event.is_end and update.answer.text:
        _print("\n")
    if event.type is EventType.DONE and event.finish_reason is not FinishReason.STOP:
        note(f"[{event.finish_reason}]")


def _print_reasoning(update: Update) -> None:
    """Beside the answer, which alone is the output."""
    answer, event = update.answer, update.event
    if event.reasoning:
        click.secho(printable(event.reasoning), dim=True, nl=False, err=True)
    if event.text and answer.text == event.text and answer.reasoning:
        note("")


def show_json(update: Update) -> None:
    """Print the event as it is in `tokens`."""
    click.echo(printable_json(msgspec.json.encode(update.event)))


def _is_for_programs(notice: Notice) -> bool:
    """Plans are, and so is the first attempt at a request that was in Kafka before its worker."""
    return notice.code == PLAN or (notice.code == ATTEMPT and (notice.details or {}).get("attempt", 0) <= 1)


def _words_of(notice: Notice) -> str:
    """Whoever reads that an answer waits has to know for how long, and how to leave."""
    details = notice.details or {}
    if notice.code != WAITING:
        return notice.message
    by, until = details.get("by"), details.get("until")
    who = "" if by is None else f", which {by} has to approve"
    end = None if until is None else datetime.fromtimestamp(until / 1000).astimezone()
    longest = "" if end is None else f", until {end:%Y-%m-%d %H:%M} at the latest"
    return f"{notice.message}{who}{longest}; Ctrl-C cancels it"


def _print(text: str) -> None:
    click.echo(printable(text), nl=False)
