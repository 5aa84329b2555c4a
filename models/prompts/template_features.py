"""What a model's chat template renders, from sentinel conversations and never from its source.

Templates differ in all that goes beyond a user and an assistant in turn: some refuse a second system message, two calls
in one message or a call without a result; some drop them without a word. Each feature is therefore tried once, when the
model is loaded: it counts as rendered if the template raises nothing and every sentinel of it is in the text. What is
not rendered goes the plain way (`plain_way.py`).
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from models.prompts.chat_template import PromptError
from models.text.control_tokens import control_tokens, sources
from models.text.reasoning import THINK, ReasoningTags, tags_of
from models.tools.format import ToolFormat
from models.tools.forms import FORMATS, form_of_call, form_of_text

Message = dict[str, Any]
"""A message as chat templates expect it."""

CALLED = ("qzfirst", "qzsecond")
_KEY, _VALUE = "qzkey", "qzvalue"
CALL_ARGUMENTS = json.dumps({_KEY: _VALUE})
_IDS = ("qzcall001", "qzcall002")
_LONG_ID = "call_qz0123456789-0123456789"
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "qzabout",
            "parameters": {"type": "object", "properties": {_KEY: {"type": "string"}}, "required": [_KEY]},
        },
    }
    for name in CALLED
]

_HARMONY = f"to=functions.{CALLED[0]}"
_NO_HARMONY = (
    "calls of tools in OpenAI's harmony are not supported: tools are described in the prompt, and calls are JSON"
)
_UNKNOWN = (
    "its template writes calls of tools in no known form: they are held to the form {}; "
    "PARLEY_TOOL_FORMAT names another one"
)
_PHI = {"<|tool_call|>", "<|/tool_call|>"}


class ToolsIn(enum.Enum):
    """How the template gets the tools: as its variable `tools` (or `xml_tools`), in the system message's key `tools`,
    or not at all, so that they are described in the system message's text.
    """

    VARIABLE = "variable"
    XML_VARIABLE = "xml_variable"
    SYSTEM_MESSAGE = "system_message"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class TemplateFeatures:
    """What is rendered.

    system: A first system message.
    systems: Two of them.
    later_system: A system message after others.
    tools: How the template gets them.
    calls: A call and its result.
    json_arguments: A call's arguments have to be JSON text instead of an object.
    several_calls: Two calls in one message, and their results.
    open_calls: A call without a result, before the next message.
    unanswered: A call's result without an answer, before the user's next message.
    long_ids: Ids of calls may have any length.
    neighbours: Two messages of one role after each other.
    opens_thinking: The answer begins inside its reasoning.
    """

    system: bool = True
    systems: bool = True
    later_system: bool = True
    tools: ToolsIn = ToolsIn.TEXT
    calls: bool = False
    json_arguments: bool = False
    several_calls: bool = True
    open_calls: bool = True
    unanswered: bool = True
    long_ids: bool = True
    neighbours: bool = True
    opens_thinking: bool = False


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """What the template renders of conversations with and without tools, the form of calls that it shows, and what it
    has written around the sentinels. `warning` is for the model's owner.
    """

    with_tools: TemplateFeatures
    without_tools: TemplateFeatures
    form: ToolFormat
    texts: tuple[str, ...]
    warning: str = ""


class Render(Protocol):
    def __call__(self, talk: Sequence[Message], tools: Sequence[Any], tools_in: ToolsIn, /) -> str:
        """The text of a prompt; raises `PromptError`."""


def user(text: str) -> Message:
    return {"role": "user", "content": text}


@dataclass(frozen=True, slots=True)
class _Trial:
    render: Render
    tools_in: ToolsIn
    json_arguments: bool = False

    def text(self, *talk: Message) -> str:
        """What the template makes of it; empty if it refuses."""
        tools = [] if self.tools_in is ToolsIn.TEXT else _TOOLS
        try:
            return self.render(talk, tools, self.tools_in)
        except PromptError:
            return ""

    def renders(self, *talk: Message) -> bool:
        text = self.text(*talk)
        return all(word in text for word in _sentinels(talk))

    def asked(self, *names: str, ids: Sequence[str] = _IDS) -> Message:
        arguments: Any = {_KEY: _VALUE}
        if self.json_arguments:
            arguments = json.dumps(arguments)
        calls = [
            {"id": one, "type": "function", "function": {"name": name, "arguments": arguments}}
            for one, name in zip(ids, names, strict=False)
        ]
        return {"role": "assistant", "content": "", "tool_calls": calls}


def report_of(tokenizer: Any, render: Render, *, has_form: bool = False) -> TemplateReport:
    """`has_form`: the form of calls is set, whatever the template renders."""
    tags = tags_of(tokenizer) or THINK
    with_tools = features_of(render, tags, with_tools=True)
    call = rendered_call(render, with_tools)
    form, warning = _form(tokenizer, with_tools, call)
    if _HARMONY in call:
        # The rest of its messages is its own; a call would not be one of them.
        with_tools = replace(with_tools, tools=ToolsIn.TEXT, calls=False, several_calls=True)
    without = with_tools if with_tools.tools is ToolsIn.TEXT else features_of(render, tags, with_tools=False)
    texts = [*rendered_texts(render, tags, with_tools), *rendered_texts(render, tags, without)]
    return TemplateReport(with_tools, without, form, tuple(texts), "" if has_form else warning)


def _form(tokenizer: Any, features: TemplateFeatures, call: str) -> tuple[ToolFormat, str]:
    """The form of calls, of which the template has rendered `call`, and a warning if it is not the template's."""
    if _HARMONY in call:
        return FORMATS["json"], _NO_HARMONY
    if call and (known := form_of_call(call, CALLED[0], CALL_ARGUMENTS)) is not None:
        # No grammar finds a trigger that begins as text and goes on with such a token.
        is_split = any(name in known.trigger != name for name in control_tokens(tokenizer).special)
        return (FORMATS["json"], _UNKNOWN.format("json")) if is_split else (known, "")
    if features.tools is ToolsIn.TEXT and not call:
        return FORMATS["json"], ""
    if features.tools is ToolsIn.SYSTEM_MESSAGE and set(tokenizer.get_vocab()) >= _PHI:
        return FORMATS["phi"], ""
    explained = form_of_text("\n".join(sources(tokenizer)))
    return explained, _UNKNOWN.format(explained.name) if call else ""


def features_of(render: Render, tags: ReasoningTags, *, with_tools: bool) -> TemplateFeatures:
    """`with_tools`: of a conversation that has tools, for which some checkpoints have a template of its own."""
    tools_in = _tools_in(render) if with_tools else ToolsIn.TEXT
    trial = _Trial(render, tools_in)
    one, other = _system("qzsys1"), _system("qzsys2")
    system = trial.renders(one, user("qzu1"))
    trial, calls = _trial_of_calls(trial)
    first, second = (_result(call_id, number) for number, call_id in enumerate(_IDS))
    return TemplateFeatures(
        system=system,
        systems=system and trial.renders(one, other, user("qzu1")),
        later_system=system and trial.renders(one, user("qzu1"), _assistant("qza1"), other, user("qzu2")),
        tools=tools_in,
        calls=calls,
        json_arguments=trial.json_arguments,
        several_calls=not calls or trial.renders(user("qzu1"), trial.asked(*CALLED), first, second),
        open_calls=not calls
        or trial.renders(user("qzu1"), trial.asked(CALLED[0]), user("qzu2"), _assistant("qza2"), user("qzu3")),
        unanswered=not calls or trial.renders(user("qzu1"), trial.asked(CALLED[0]), first, user("qzu2")),
        long_ids=not calls or trial.renders(user("qzu1"), trial.asked(CALLED[0], ids=[_LONG_ID]), _result(_LONG_ID, 0)),
        neighbours=trial.renders(
            user("qzu1"), user("qzu2"), _assistant("qza1"), _assistant("qza2"), user("qzu3"), user("qzu4")
        ),
        opens_thinking=trial.text(user("qzu1")).rstrip().endswith(tags.begin),
    )


def rendered_call(render: Render, features: TemplateFeatures) -> str:
    """The text of a conversation with a call of `CALLED[0]`, empty if the template renders no calls."""
    trial = _Trial(render, features.tools, features.json_arguments)
    return trial.text(user("qzu1"), trial.asked(CALLED[0]), _result(_IDS[0], 0)) if features.calls else ""


def rendered_texts(render: Render, tags: ReasoningTags, features: TemplateFeatures) -> list[str]:
    """What the template writes around a conversation of every kind that it renders."""
    trial = _Trial(render, features.tools, features.json_arguments)
    thought = _assistant(f"{tags.begin}\nqzthought\n{tags.end}\n\nqza1")
    instructed = trial.text(_system("qzsys1"), user("qzu1"))
    texts = [
        instructed,
        trial.text(user("qzu1")),
        trial.text(user("qzu1"), thought, user("qzu2")),
        rendered_call(render, features),
    ]
    return [text for text in texts if text]


def _tools_in(render: Render) -> ToolsIn:
    for tools_in in (ToolsIn.VARIABLE, ToolsIn.XML_VARIABLE, ToolsIn.SYSTEM_MESSAGE):
        trial = _Trial(render, tools_in)
        talks: list[tuple[Message, ...]] = [(user("qzu1"),)]
        if trial.renders(_system("qzsys1"), user("qzu1")):
            talks.append((_system("qzsys1"), user("qzu1")))
        if all(_shows_tools(trial.text(*talk)) for talk in talks):
            return tools_in
    return ToolsIn.TEXT


def _shows_tools(text: str) -> bool:
    return all(word in text for word in (*CALLED, _KEY))


def _trial_of_calls(trial: _Trial) -> tuple[_Trial, bool]:
    """The trial with the arguments as this template prints them as JSON, and whether it renders calls at all."""
    talk = (user("qzu1"), trial.asked(CALLED[0]), _result(_IDS[0], 0))
    renders_objects = trial.renders(*talk)
    if renders_objects and f"'{_KEY}'" not in trial.text(*talk):
        return trial, True
    as_text = _Trial(trial.render, trial.tools_in, json_arguments=True)
    talk = (user("qzu1"), as_text.asked(CALLED[0]), _result(_IDS[0], 0))
    if as_text.renders(*talk) and f'"{_KEY}"' in as_text.text(*talk):
        return as_text, True
    return trial, renders_objects


def _sentinels(talk: Sequence[Message]) -> list[str]:
    texts = [message["content"] for message in talk]
    for message in talk:
        texts += [call["function"]["name"] for call in message.get("tool_calls", ())]
        texts += [_KEY, _VALUE] if message.get("tool_calls") else []
    return texts


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _result(call_id: str, number: int) -> Message:
    return {"role": "tool", "content": f"qzresult{number}", "tool_call_id": call_id}
