"""`parley chat`: a talk in the terminal, over Kafka."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import click

from app.commands.answer_view import show
from app.commands.background import BackgroundLoop
from app.commands.chat_session import ChatSession
from app.commands.terminal import WrongUseError, note, plain_failures, settings_of_terminal
from app.kafka_clients import KafkaUnusableError
from app.reader import Following
from app.wire import DEFAULT_CONVERSATION, ErrorInfo
from app.wire.limits import is_conversation_id, is_user_id

PATIENCE_S = 15.0


@click.command()
@click.option("--user", required=True, help="Who asks: the key of the records.")
@click.option("--conversation", default=DEFAULT_CONVERSATION, show_default=True, help="Which of the user's talks.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer.")
@click.argument("prompt", required=False)
def chat(user: str, conversation: str, max_tokens: int | None, prompt: str | None) -> None:
    """Ask PROMPT and print the answer as it comes; without PROMPT, talk.

    Ctrl-C cancels the answer, a second one leaves.
    """
    if not is_user_id(user):
        raise WrongUseError("--user must have 1-128 characters")
    if not is_conversation_id(conversation):
        raise WrongUseError("--conversation must have at most 256 characters")
    if prompt is not None and not prompt:
        raise WrongUseError("PROMPT is empty")
    session = ChatSession(settings_of_terminal(), user, conversation, max_tokens)
    with plain_failures(), BackgroundLoop() as loop:
        try:
            loop.wait(session.start())
            failed = _talk(loop, session, prompt)
        except KeyboardInterrupt:
            note("\nleft before the end")
            sys.exit(1)
        finally:
            loop.wait(session.stop())
    sys.exit(1 if failed else 0)


def _talk(loop: BackgroundLoop, session: ChatSession, prompt: str | None) -> bool:
    """Ask all prompts; whether the last answer was an error."""
    error: ErrorInfo | None = None
    for one in [prompt] if prompt is not None else _prompts():
        error = _answer(loop, session, one)
        if error is not None:
            note(f"Error: {error.message} ({error.code})")
    return error is not None


def _answer(loop: BackgroundLoop, session: ChatSession, prompt: str) -> ErrorInfo | None:
    request_id, following = loop.wait(session.ask(prompt))

    def cancel() -> None:
        loop.begin(_cancel(session, request_id))
        note("\n[cancelling; Ctrl-C again leaves at once]")

    return loop.wait(_print(following), on_interrupt=cancel)


async def _cancel(session: ChatSession, request_id: str) -> None:
    try:
        await session.cancel(request_id)
    except KafkaUnusableError as error:
        note(f"[the answer could not be cancelled: {error}]")


async def _print(following: Following) -> ErrorInfo | None:
    hint = asyncio.get_running_loop().call_later(
        PATIENCE_S, note, "[no answer yet; a worker must be running: `faust -A app worker -l info`]"
    )
    error = None
    try:
        async for update in following:
            hint.cancel()
            show(update)
            error = update.event.error
    finally:
        hint.cancel()
        following.close()
    return error


def _prompts() -> Iterator[str]:
    """What the user types, up to the end of the input; Ctrl-C there leaves too."""
    if sys.stdin.isatty():
        import readline  # noqa: F401, PLC0415 - line editing, where somebody types
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            if sys.stdin.isatty():
                note("")
            return
        if line.strip():
            yield line
