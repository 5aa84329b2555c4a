"""The slash commands of `parley chat`."""

from __future__ import annotations

import secrets
import sys

import click

from app.chat_session import ChatSession
from app.commands.background import BackgroundLoop
from app.commands.search import find, print_hits
from app.commands.terminal import note
from app.wire.ids import is_conversation_id
from app.wire.request import WhileBusy

_HELP = """\
/new [NAME]     start a conversation, or continue the one with that name
/model [NAME]   ask this model from now on, or the default one
/search WORDS   search your history
/stop           stop the running answer (or press Ctrl-C)
/now TEXT       stop it, and ask this
/instead TEXT   stop it, forget its question, and ask this
/help           show this list
/quit           exit (or press Ctrl-D)
A line that ends with \\ continues on the next line; //... sends a prompt that begins with a slash."""
_HITS = 5
_RULES = {"/now": WhileBusy.INTERRUPT, "/instead": WhileBusy.ROLLBACK}


def is_command(line: str) -> bool:
    return line.startswith("/") and not line.startswith("//")


def prompt_now(line: str) -> tuple[str, WhileBusy] | None:
    """The prompt of a line that is asked at once, and what it does to a running answer; None for other lines."""
    name, _, rest = line.partition(" ")
    return (rest.strip(), _RULES[name]) if name in _RULES and rest.strip() else None


def obey(line: str, session: ChatSession, loop: BackgroundLoop) -> bool:
    """Carry out the command. Returns False to exit."""
    name, _, rest = line.partition(" ")
    rest = rest.strip()
    match name:
        case "/new":
            _new(session, rest)
        case "/model":
            session.model = rest or None
            note(f"[model {rest or 'default'}]")
        case "/search" if rest:
            _search(session, rest, loop)
        case "/search":
            note("[usage: /search WORDS]")
        case "/stop":
            note("[no answer is running]")
        case "/now" | "/instead":
            note(f"[usage: {name} TEXT]")
        case "/help":
            note(_HELP)
        case "/quit" | "/exit":
            return False
        case _:
            note(f"[unknown command {name}; /help lists the commands]")
    return True


def _new(session: ChatSession, name: str) -> None:
    name = name or secrets.token_hex(4)
    if not is_conversation_id(name):
        note("[a conversation id has at most 256 characters]")
        return
    session.conversation_id = name
    note(f"[conversation {name}]")


def _search(session: ChatSession, text: str, loop: BackgroundLoop) -> None:
    if "app.search.milvus" not in sys.modules:
        note("[loading the embedder for the first search]")

    options = {"user": session.user_id, "limit": _HITS}
    try:
        print_hits(loop.wait(find(session.settings, text, options)), text, session.user_id)
    except click.ClickException as error:
        note(f"[{error.format_message()}]")
    except KeyboardInterrupt:
        note("\n[search cancelled]")
