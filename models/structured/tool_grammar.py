"""The grammar of an answer with tools, in llguidance's Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence

from models.interface.generation import ConstraintError, ConstraintKind, OutputConstraint
from models.structured.argument_grammar import argument_rules, json_rule
from models.structured.patterns import exactly, terminal, whole
from models.tools.format import ArgumentStyle, ToolFormat
from models.tools.parser import FENCE, FENCE_END
from models.tools.rule import CallableTool, ToolRule

# A longer string is taken apart: looking for its end from each quote in it takes time by the square of its length.
_TERMINALS = re.compile(r'[{}\[\]]|: |, |"(?:[^"\\]|\\.){0,64}+"|[^{}\[\]":,]+|.', re.DOTALL)
_ANYTHING = r"(.|\n)*"
_BLANK = r" \t\n\r"
_SPACES = " \t\n\r"


def lark_of_tools(rule: ToolRule, opened: Collection[str] = ()) -> str:
    """`opened`: names of tools that take any object, because their schemas cannot be followed.

    Raises `ConstraintError`, which names the tool, if a schema is too large.
    """
    form = rule.form
    calls = _calls(rule)
    rules = [_call(form, rule.tools)]
    for number, tool in enumerate(rule.tools):
        rules += _arguments(number, tool, form, is_open=tool.name in opened)
    if rule.content is not None and not rule.is_required:
        rules = [f"start: {_text(form.trigger, form)} {calls} | content", *rules, f"content: {_content(rule.content)}"]
    elif form.leads or not form.after:
        rules = [*_led(rule, calls), *rules]
    else:
        rules = [*_after_reasoning(rule), *rules]
    return "\n".join(["%llguidance {}", *rules])


def _calls(rule: ToolRule) -> str:
    """What follows the trigger."""
    form = rule.form
    return " ".join(filter(None, (_text(form.opening, form), "call", _rest(rule))))


def _rest(rule: ToolRule) -> str:
    """What follows the first call."""
    more = "" if rule.is_single else f"({_text(rule.form.separator, rule.form)} call)*"
    return " ".join(filter(None, (more, _text(rule.form.end, rule.form))))


def _led(rule: ToolRule, calls: str) -> list[str]:
    form, trigger = rule.form, _text(rule.form.trigger, rule.form)
    if rule.is_required:
        return [f"start: {trigger} {calls}"]
    if not form.leads:
        # An answer is text if it does not begin like a call.
        begun, beginnings = _begun(rule)
        return [f"start: {begun} | TEXT?", f"TEXT: /{_unlike(beginnings)}/"]
    if form.trigger in dict(form.specials):
        return [f"start: TEXT? {trigger} {calls} | TEXT", f"TEXT: /{_ANYTHING}/"]
    return [f"start: lead {calls} | TEXT", f"lead[lazy]: TEXT {trigger}", f"TEXT: /{_ANYTHING}/"]


def _begun(rule: ToolRule, *, is_spaced: bool = False) -> tuple[str, list[str]]:
    """The calls of a form that does not lead, and the texts that commit an answer to them, each as one terminal.

    is_spaced: White space precedes them already.
    """
    form = rule.form
    if form.commits:
        texts = [form.trigger, *(one for one in form.beginnings if not is_spaced or one[0] not in _SPACES)]
        plain, fenced = ([json.dumps(one) for one in texts if (FENCE in one) == is_in] for is_in in (False, True))
        begun = f"({' | '.join(plain)}) {_calls(rule)}"
        if fenced:
            begun += f" | ({' | '.join(fenced)}) {_calls(rule)} {json.dumps(FENCE_END)}"
        return f"({begun})", texts
    beginnings = [form.beginning(tool.name) for tool in rule.tools]
    each = (f"{json.dumps(text, ensure_ascii=False)} arguments_{number}" for number, text in enumerate(beginnings))
    return f"({' | '.join(each)}) {_text(form.closing, form)} {_rest(rule)}", beginnings


def _after_reasoning(rule: ToolRule) -> list[str]:
    """The answer begins inside the model's reasoning; a call, or text, follows that."""
    form, after = rule.form, _text(rule.form.after, rule.form)
    is_special = form.after in dict(form.specials)
    thought = f"TEXT? {after}" if is_special else "thought"
    rest = "" if rule.is_required else " | REST?"
    begun, beginnings = _begun(rule, is_spaced=True)
    rules = [f"start: {thought} SPACE? ({begun}{rest})" + ("" if rule.is_required else " | TEXT")]
    if not is_special:
        rules.append(f"thought[lazy]: TEXT {after}")
    if not rule.is_required:
        rules.append(f"REST: /{_unlike(beginnings, _BLANK)}/")
    return [*rules, f"SPACE: /[{_BLANK}]+/", f"TEXT: /{_ANYTHING}/"]


def _unlike(beginnings: Sequence[str], never: str = "") -> str:
    """A regular expression of the texts that begin with none of the beginnings; no text begins with one of `never`."""
    following: dict[str, dict[str, None]] = {}
    for beginning in beginnings:
        for at, character in enumerate(beginning):
            following.setdefault(beginning[:at], {})[character] = None
    choices = []
    for begun, characters in following.items():
        other = f"[^{''.join(map(_escaped, characters))}{'' if begun else never}]"
        choices.append(f"{_escaped(begun)}({other}{_ANYTHING})?" if begun else f"{other}{_ANYTHING}")
    return "|".join(choices)


def _escaped(text: str) -> str:
    return exactly(text).replace("/", r"\/")


def _call(form: ToolFormat, tools: Sequence[CallableTool]) -> str:
    each = (
        f"{_text(form.name_text(tool.name) + form.middle, form)} arguments_{number}"
        for number, tool in enumerate(tools)
    )
    return f"call: ({' | '.join(each)}) {_text(form.closing, form)}"


def _arguments(number: int, tool: CallableTool, form: ToolFormat, *, is_open: bool) -> list[str]:
    try:
        return argument_rules(number, tool, form, lambda text: _text(text, form), is_open=is_open)
    except ConstraintError as error:
        if form.arguments is not ArgumentStyle.JSON and not tool.is_strict and not is_open:
            return _arguments(number, tool, form, is_open=True)
        raise ConstraintError(f"{tool.name}: {error}") from None


def _content(content: OutputConstraint) -> str:
    match content.kind:
        case ConstraintKind.JSON:
            return json_rule(json.loads(content.rule))
        case ConstraintKind.CHOICES:
            return " | ".join(_parts(choice) for choice in json.loads(content.rule))
        case ConstraintKind.REGEX:
            return terminal(whole(content.rule))
        case _:
            raise ConstraintError("a grammar cannot be combined with tools")


def _text(text: str, form: ToolFormat) -> str:
    """The text as the terminals that it is made of, special tokens by their ids."""
    specials = dict(form.specials)
    if not specials:
        return _parts(text)
    names = "|".join(map(re.escape, sorted(specials, key=len, reverse=True)))
    parts = filter(None, re.split(f"({names})", text))
    return " ".join(f"<[{specials[part]}]>" if part in specials else _parts(part) for part in parts)


def _parts(text: str) -> str:
    """The text as the terminals that JSON is made of.

    llguidance does not go back within a terminal: if a call's beginning were one, an answer that begins with the same
    bracket could not be anything else.
    """
    return " ".join(json.dumps(part, ensure_ascii=False) for part in _TERMINALS.findall(text))
