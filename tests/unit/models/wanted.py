"""What the chat templates of `templates` want of a conversation, by hand from their texts: the oracle of prompts.

A template that wants nothing special gets the messages as they are. For the others the kind of each wish is one line
here. `right` then is transformers' own rendering.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from models.interface.chat import ChatMessage
from models.tools import FORMATS
from models.tools.rendering import introduced
from tests.unit.models.conversations import Conversation

Messages = list[dict[str, Any]]
NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Wants:
    """`form` is that of calls. The rest is what a template wants instead of the messages as they are.

    tools_in: The variable of the tools, `system` for a key of the first system message, or "" for their description.
    first_user_has_system: No system message: its text stands before the first user's.
    one_system: One system message at most, the first message.
    calls_as_text: Calls and results as texts of assistant and user.
    one_call: A message has one call, which its result follows.
    arguments_as_text: Arguments are JSON text.
    all_answered: Each call has a result, and after results the assistant speaks before the user does.
    short_ids: Ids of nine letters or digits.
    alternating: No two messages of users, or of assistants, after each other.
    """

    form: str = "json"
    tools_in: str = ""
    first_user_has_system: bool = False
    one_system: bool = False
    calls_as_text: bool = False
    one_call: bool = False
    arguments_as_text: bool = False
    all_answered: bool = False
    short_ids: bool = False
    alternating: bool = False


_MISTRAL = Wants("mistral", "tools", one_system=True, all_answered=True, short_ids=True, alternating=True)
WANTS = {
    "deepseek3": Wants("deepseek", arguments_as_text=True),
    "deepseek32": Wants("dsml", "tools", one_system=True),
    "gemma2": Wants(first_user_has_system=True, calls_as_text=True, alternating=True),
    "gemma3": Wants(one_system=True, calls_as_text=True, alternating=True),
    "glm4": Wants(tools_in="tools", calls_as_text=True),
    "glm45": Wants("glm45", "tools"),
    "glm47": Wants("glm47", "tools"),
    "granite": Wants("granite", "tools", calls_as_text=True),
    "granite4": Wants("hermes", "tools"),
    "harmony": Wants(calls_as_text=True),
    "llama31": Wants("llama", "tools", one_call=True),
    "minimax": Wants("minimax", "tools", one_system=True),
    "mistral7b": _MISTRAL,
    "mistral_small": replace(_MISTRAL, form="args", short_ids=False),
    "nemo": _MISTRAL,
    "olmo2": Wants(calls_as_text=True),
    "olmo3": Wants("olmo3"),
    "phi4mini": Wants("phi", "system", calls_as_text=True),
    "qwen25": Wants("hermes", "tools"),
    "qwen3": Wants("hermes", "tools"),
    "qwen35": Wants("qwen_coder", "tools", one_system=True),
    "r1": Wants(one_system=True, calls_as_text=True),
    "smollm2": Wants(calls_as_text=True),
    "smollm3": Wants("hermes", "xml_tools", one_system=True, calls_as_text=True),
}


def rights(tokenizer: Any, wants: Wants, asked: Conversation) -> Iterator[tuple[str, bool]]:
    """The renderings of transformers, the plainer ones later, and whether each is of what is wanted alone.

    A template may refuse what some client has put into a conversation whatever it wants; then the first of the plainer
    ones that it renders is right: calls as texts, one system message, and a user's first message.
    """
    plain = replace(wants, calls_as_text=True, one_system=True, alternating=True)
    plainest = replace(plain, first_user_has_system=True, tools_in="")
    for number, one in enumerate((wants, plain, plainest)):
        messages, given = _messages(one, asked, is_begun=bool(number))
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **given)
        except Exception:  # noqa: BLE001 - whatever a template raises
            continue
        yield str(text), number == 0


def _messages(wants: Wants, asked: Conversation, *, is_begun: bool) -> tuple[Messages, dict[str, Any]]:
    """The messages as they are wanted, and the variable of the tools. `is_begun`: a user speaks first."""
    talk: Messages = [_message(one, wants) for one in asked.talk]
    if asked.system and not any(one["role"] == "system" for one in talk):
        talk = [{"role": "system", "content": asked.system}, *talk]
    if is_begun and next(one for one in talk if one["role"] != "system")["role"] != "user":
        first = next(at for at, one in enumerate(talk) if one["role"] != "system")
        talk.insert(first, {"role": "user", "content": ""})
    talk = [_plain(one, wants) for one in talk] if wants.calls_as_text else _calls(talk, wants)
    given: dict[str, Any] = {}
    if asked.tools:
        talk, given = _with_tools(talk, [one.described for one in asked.tools], wants)
    if wants.first_user_has_system:
        talk = _into_user(talk)
    elif wants.one_system and any(one["role"] == "system" for one in talk):
        talk = _one_system(talk)
    return _alternating(talk) if wants.alternating else talk, given


def _message(message: ChatMessage, wants: Wants) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        made["tool_calls"] = [
            {"id": _id(one.id, wants), "type": "function",
             "function": {"name": one.name, "arguments": _arguments(one.arguments, wants)}}
            for one in message.calls
        ]  # fmt: skip
    if message.call_id:
        made["tool_call_id"] = _id(message.call_id, wants)
    return made


def _id(call_id: str, wants: Wants) -> str:
    """Which nine letters is Parley's choice: `without_ids` forgets it."""
    if not wants.short_ids or (len(call_id) == 9 and call_id.isalnum()):
        return call_id
    return f"{zlib.crc32(call_id.encode()):09x}"


def without_ids(text: str) -> str:
    """The text with a number for each id of nine letters, in the order in which they are written first."""
    numbers: dict[str, int] = {}
    return _SHORT_ID.sub(lambda one: f"{one[1]}{numbers.setdefault(one[2], len(numbers))}", text)


_SHORT_ID = re.compile(r'("(?:call_)?id": ")(\w{9})(?=")')


def _arguments(arguments: str, wants: Wants) -> Any:
    try:
        values = json.loads(arguments or "{}")
    except ValueError:
        return arguments
    return json.dumps(values, ensure_ascii=False) if wants.arguments_as_text and not wants.calls_as_text else values


def _calls(talk: Messages, wants: Wants) -> Messages:
    made: Messages = []
    for at, message in enumerate(talk):
        calls = message.get("tool_calls", [])
        end = next((n for n in range(at + 1, len(talk)) if talk[n]["role"] != "tool"), len(talk))
        results = talk[at + 1 : end]
        if not calls:
            made += [message] if message["role"] != "tool" or _is_lost(talk, at) else []
            continue
        if wants.all_answered and end < len(talk):
            known = [one["tool_call_id"] for one in results]
            missing = [one["id"] for one in calls if one["id"] not in known]
            results += [{"role": "tool", "content": NOT_RUN, "tool_call_id": one} for one in missing]
        if wants.one_call:
            for number, one in enumerate(calls):
                content = message["content"] if number == 0 else ""
                made.append({"role": "assistant", "content": content, "tool_calls": [one]})
                made += [result for result in results if result["tool_call_id"] == one["id"]]
            made += [one for one in results if one["tool_call_id"] not in [call["id"] for call in calls]]
        else:
            made += [message, *results]
        if wants.all_answered and results and end < len(talk) and talk[end]["role"] == "user":
            made.append({"role": "assistant", "content": ""})
    return made


def _is_lost(talk: Messages, at: int) -> bool:
    """Whether the message, a tool's, follows no call."""
    before = [one for one in talk[:at] if one["role"] != "tool"]
    return not before or "tool_calls" not in before[-1]


def _plain(message: dict[str, Any], wants: Wants) -> dict[str, Any]:
    content = message["content"]
    if message["role"] == "tool":
        return {"role": "user", "content": f"Result of the tool: {content}"}
    if "tool_calls" in message:
        functions = [one["function"] for one in message["tool_calls"]]
        calls = FORMATS[wants.form].written([(one["name"], json.dumps(one["arguments"])) for one in functions])
        content = f"{content}\n{calls}" if content else calls
    return {"role": message["role"], "content": content}


def _with_tools(talk: Messages, described: list[dict[str, Any]], wants: Wants) -> tuple[Messages, dict[str, Any]]:
    if wants.tools_in == "system":
        written = json.dumps([one["function"] for one in described], ensure_ascii=False)
        if talk[0]["role"] == "system":
            return [{**talk[0], "tools": written}, *talk[1:]], {}
        return [{"role": "system", "content": "", "tools": written}, *talk], {}
    if wants.tools_in:
        return talk, {wants.tools_in: described}
    text = introduced(described, FORMATS[wants.form])
    at = next((at for at, one in enumerate(talk) if one["role"] == "system"), None)
    if at is None:
        return [{"role": "system", "content": text}, *talk], {}
    return [*talk[:at], {**talk[at], "content": f"{talk[at]['content']}\n\n{text}"}, *talk[at + 1 :]], {}


def _one_system(talk: Messages) -> Messages:
    systems = [one for one in talk if one["role"] == "system"]
    content = "\n\n".join(one["content"] for one in systems)
    keys = {key: value for one in reversed(systems) for key, value in one.items()}
    return [{**keys, "content": content}, *(one for one in talk if one["role"] != "system")]


def _into_user(talk: Messages) -> Messages:
    systems = [one["content"] for one in talk if one["role"] == "system"]
    others = [one for one in talk if one["role"] != "system"]
    if not systems:
        return others
    at = next(at for at, one in enumerate(others) if one["role"] == "user")
    content = "\n".join(systems) + "\n\n" + others[at]["content"]
    return [*others[:at], {"role": "user", "content": content}, *others[at + 1 :]]


def _alternating(talk: Messages) -> Messages:
    made: Messages = []
    for one in talk:
        is_text = one["role"] != "tool" and "tool_calls" not in one
        if made and is_text and made[-1]["role"] == one["role"] and "tool_calls" not in made[-1]:
            texts = [text for text in (made[-1]["content"], one["content"]) if text]
            made[-1] = {**made[-1], "content": "\n\n".join(texts)}
        else:
            made.append(one)
    return made
