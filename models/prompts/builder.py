"""From a conversation to token ids, with the checkpoint's own chat template.

The ids are a pure function of the arguments, so an answer that is resumed elsewhere has the same prompt; `digest`
compares the two. Names of tokens that control the model, special or written by its template, are removed from all
texts and never become such tokens.

What the template renders is tried when the model is loaded (template_features.py), and the rest goes the plain way
(plain_way.py). Messages that a template refuses all the same are rendered more and more plainly, so that nothing that a
conversation holds keeps its later turns from being answered.
"""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from models.interface.chat import ChatMessage, PastTurn
from models.interface.unexpected import type_and_line
from models.prompts.chat_template import NONE, ChatTemplate, PromptError, PromptRejected, PromptTooSlow, TemplateValue
from models.prompts.forgery.cleaning import Cleaning, cleaned, may_change
from models.prompts.forgery.normalizing import normalizing
from models.prompts.forgery.special_tokens import SpecialTokens
from models.prompts.plain_way import begun_by_user, in_system, plainest, shaped
from models.prompts.segment_tokenizer import SegmentTokenizer, ids_before
from models.prompts.template_features import TemplateFeatures, TemplateReport, ToolsIn, report_of, user
from models.text.control_tokens import control_tokens, sources
from models.text.plain_dialogue import PlainStart, plain_prompt
from models.text.reasoning import THINK, Reasoning, tags_of
from models.tools.format import ToolFormat
from models.tools.forms import bound
from models.tools.plugged import form_named
from models.tools.rendering import RESULT_MARK, clean_json, described
from models.tools.tool import ModelTool

if TYPE_CHECKING:
    from models.checkpoints.loading import Checkpoint

__all__ = ["BuiltPrompt", "PromptBuilder", "PromptError", "PromptTooLong", "PromptTooSlow"]

log = logging.getLogger(__name__)

Rendered = dict[str, Any]
"""A message as chat templates expect it."""

_EFFORT = "reasoning_effort"
_SWITCHES = ("enable_thinking", "thinking")
"""Variables of templates that only know whether to reason."""
_VARIABLES = {ToolsIn.VARIABLE: "tools", ToolsIn.XML_VARIABLE: "xml_tools"}


class TemplateOptions(TypedDict, total=False):
    """What a template gets beside the messages.

    tools: What may be called.
    continues: The answer continues the last message, which is the assistant's.
    at: The Unix time.
    template_values: Further variables, such as `enable_thinking` or those of `values_of_effort`, which may not have the
        name of one that it gets anyway.
    """

    tools: Sequence[ModelTool]
    continues: bool
    at: float
    template_values: Mapping[str, TemplateValue]


class PromptOptions(TemplateOptions, total=False):
    """What else a prompt may have: turns `recalled` before its memory, calls and results as `steps` behind what the
    user says, room to `reserve` for so many tokens.
    """

    recalled: Sequence[PastTurn]
    steps: Sequence[ChatMessage]
    reserve: int


def turns_and_messages(
    memory: Sequence[PastTurn | tuple[str, str]],
    prompt: str | None,
    messages: Sequence[ChatMessage] | None,
    how: PromptOptions,
    most: int | None = None,
) -> tuple[list[PastTurn], list[ChatMessage]]:
    """The turns before, `most` of them from memory, and the messages from the prompt on."""
    kept = memory if most is None else memory[max(0, len(memory) - most) :]
    turns = [*how.get("recalled", ()), *(PastTurn(*turn) for turn in kept)]
    return turns, [ChatMessage("user", prompt or ""), *how.get("steps", ())] if messages is None else list(messages)


class PromptTooLong(Exception):  # noqa: N818  the name its readers use
    """The prompt alone does not fit into the model's context; the message is one line."""


@contextmanager
def _containing() -> Iterator[None]:
    """Whatever a template, a tokenizer or a text raises is about this prompt alone."""
    try:
        yield
    except (PromptError, PromptTooLong):
        raise
    except Exception as error:
        log.warning("a prompt cannot be built: %s", type_and_line(error))
        raise PromptError("no prompt of this model can be built from these messages") from error


@dataclass(frozen=True, slots=True)
class BuiltPrompt:
    """Token ids, how many of the newest turns they contain, and a short hash of them.

    The first `shared` tokens come from the service and are the same for every user. `reasoning`: where the answer
    begins, if the model may reason before it. `plain`: where it begins, if the model has no chat template.
    """

    ids: tuple[int, ...]
    turns_used: int
    digest: str
    shared: int = 0
    reasoning: Reasoning | None = None
    plain: PlainStart | None = None


class PromptBuilder:
    """Renders conversations for one checkpoint."""

    def __init__(self, checkpoint: Checkpoint, memory_turns: int = 10, tool_format: str = "") -> None:
        """`tool_format`: one of `form_names`; empty means the form that the chat template shows."""
        self._tokenizer = checkpoint.tokenizer
        self._template = ChatTemplate(self._tokenizer)
        self._context_length = checkpoint.context_length
        self._memory_turns = memory_turns
        tags = tags_of(self._tokenizer)
        self._may_reason = tags is not None
        self._tags = tags or THINK
        tokens = control_tokens(self._tokenizer)
        self.report: TemplateReport = report_of(self._tokenizer, self.tried, has_form=bool(tool_format))
        form = form_named(tool_format) if tool_format else self.report.form
        self.tool_format: ToolFormat = bound(form, tokens.tags, self._tags.end if self.features.opens_thinking else "")
        self.tool_marker: int | None = tokens.tags.get(form.trigger)
        self.has_single_calls = not self.features.several_calls
        reads = normalizing(self._tokenizer.backend_tokenizer)
        self._special = SpecialTokens(tokens.special, reads)
        control = tokens.written(self._tokenizer, self.report.texts, self.tool_format)
        if self._may_reason:
            control |= {self._tags.begin, self._tags.end}
        if not (self.report.with_tools.calls and self.report.without_tools.calls):
            control |= {RESULT_MARK}
        self._foreign = SpecialTokens(control, reads)
        # A model's own text may have these tags: templates take its reasoning out by them.
        self._own = SpecialTokens(control - {self._tags.begin, self._tags.end} | set(tokens.special), reads)
        self._segments = SegmentTokenizer(self._tokenizer.backend_tokenizer)
        self._before_text = ids_before(self._tokenizer)
        # A chat template writes them itself.
        self._opening = () if self.has_template else self._before_text
        self._changes = any(map(may_change, sources(self._tokenizer)))
        self._preambles: dict[str, tuple[int, ...]] = {}

    @property
    def has_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    @property
    def features(self) -> TemplateFeatures:
        """What the chat template renders of a conversation with tools."""
        return self.report.with_tools

    @_containing()
    def build(
        self,
        system: str,
        memory: Sequence[PastTurn | tuple[str, str]] = (),
        prompt: str | None = None,
        messages: Sequence[ChatMessage] | None = None,
        **how: Unpack[PromptOptions],
    ) -> BuiltPrompt:
        """The prompt for `prompt` or `messages` after `memory`. If they leave too little room, the first turns are
        dropped.

        Raises:
            PromptTooLong: the messages do not fit.
            PromptTooSlow: this thread runs an event loop and has to let another one build the prompt.
            PromptError: for whatever other reason no prompt can be built from them.
        """
        turns, last = turns_and_messages(memory, prompt, messages, how, self._memory_turns)
        has_system = any(message.role == "system" for message in last)
        private = bool(how.get("tools") or how.get("template_values") or has_system)
        instructions = list(takewhile(lambda message: message.role == "system", last))
        last = last[len(instructions) :]

        def render(used: int) -> tuple[str, list[int]]:
            past = [message for turn in turns[len(turns) - used :] for message in turn.messages]
            talk = [*instructions, *past, *last]
            text = self._text(system, talk, how)
            return text, self._ids_of(text)

        room = self._context_length - how.get("reserve", 1)
        used, (text, ids) = len(turns), render(len(turns))
        if len(ids) > room and turns:
            # dropping turns never lengthens it: find the most that fit
            low, high, best = 0, used - 1, (0, render(0))
            while low < high:
                middle = (low + high + 1) // 2
                tried = render(middle)
                if len(tried[1]) <= room:
                    low, best = middle, (middle, tried)
                else:
                    high = middle - 1
            used, (text, ids) = best
        self._must_fit(ids)
        shared = 0 if private else self._shared(ids, system, how.get("at", 0.0))
        plain = None if self.has_template else PlainStart.NEW_LINE if text.endswith("\n") else PlainStart.WITHIN
        return _built(ids, used, shared, self._reasoning(text, continues=how.get("continues", False)), plain)

    @_containing()
    def rendered(self, system: str, messages: Sequence[ChatMessage], **how: Unpack[TemplateOptions]) -> str:
        """The text of the prompt that `build` makes of `messages` alone; raises `PromptError`."""
        opening: list[str] = self._tokenizer.convert_ids_to_tokens(self._opening)
        return "".join(opening) + self._text(system, messages, how)

    def values_of_effort(self, effort: str) -> Mapping[str, TemplateValue]:
        """The variables that make this model reason so much; `none` means not at all.

        Raises `PromptError` for a model whose template cannot be asked for that.
        """
        variable = self._reasoning_variable
        if variable == _EFFORT:
            return {_EFFORT: effort}
        if variable is not None:
            return {variable: effort != "none"}
        if effort == "none" and not self._may_reason:
            return {}
        raise PromptError("reasoning_effort: this model's chat template has no such choice")

    def count(self, text: str) -> int:
        """How many tokens `text` has, without chat template."""
        return len(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def ids_of(self, text: str, begins: Reasoning | None = None) -> Sequence[int]:
        """The tokens of `text` as a part of an answer that `begins` so: names of special tokens in it are removed."""
        closed = f"{self._tags.end}\n\n" if begins is Reasoning.OPENED else ""
        whole = closed + self._special.removed_from(text)
        ids: list[int] = self._tokenizer(whole, add_special_tokens=False)["input_ids"]
        return ids

    @_containing()
    def raw(self, text: str) -> BuiltPrompt:
        """`text` as the model reads it, without chat template; names of special tokens in it are special tokens.

        Raises `PromptTooLong`.
        """
        return self.of_ids([*self._before_text, *self._tokenizer(text, add_special_tokens=False)["input_ids"]])

    @_containing()
    def of_ids(self, ids: Sequence[int]) -> BuiltPrompt:
        """The prompt with these token ids; raises `PromptTooLong`."""
        self._must_fit(ids)
        return _built(ids, 0, 0)

    def _shared(self, ids: Sequence[int], system: str, at: float) -> int:
        """How many tokens the prompt shares with every other: those of the system prompt and the template."""
        preamble = self._preambles.get(system)
        if preamble is None or tuple(ids[: len(preamble)]) != preamble:
            # the first prompt, or one whose template shows another date
            preamble = self._preambles[system] = self._preamble(system, at)
        return len(preamble) if tuple(ids[: len(preamble)]) == preamble else 0

    def _preamble(self, system: str, at: float) -> tuple[int, ...]:
        try:
            texts = (self._text(system, [ChatMessage("user", word)], {"at": at}) for word in ("x", "7"))
            one, other = map(self._ids_of, texts)
        except PromptError:
            return ()
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
        return tuple(token for token, _ in alike)

    def _ids_of(self, text: str) -> list[int]:
        return [*self._opening, *self._segments.ids(text)]

    def _text(self, system: str, messages: Sequence[ChatMessage], how: TemplateOptions) -> str:
        def text(cleaning: Cleaning) -> str:
            return self._cleaned_text(cleaning, system, messages, how)

        return cleaned(text, self._foreign, self._own, self._tags, changes=self._changes)

    def _cleaned_text(
        self, cleaning: Cleaning, system: str, messages: Sequence[ChatMessage], how: TemplateOptions
    ) -> str:
        tools, values = how.get("tools", ()), how.get("template_values", NONE)
        at, continues = how.get("at", 0.0), how.get("continues", False)
        features = self.report.with_tools if tools else self.report.without_tools
        talk = [self._described(message, features, cleaning) for message in messages]
        if system and not any(message["role"] == "system" for message in talk):
            talk = [{"role": "system", "content": cleaning.foreign(system)}, *talk]
        known = [clean_json(tool.described, cleaning.foreign) for tool in tools]
        values = {name: cleaning.foreign(one) if isinstance(one, str) else one for name, one in values.items()}

        def text(features: TemplateFeatures, talk: list[Rendered]) -> str:
            shape = shaped(talk, known, features, self.tool_format)
            return self._render(shape, at, known, features.tools, values, continues=continues)

        try:
            return text(features, talk)
        except PromptRejected:
            for plain in plainest(features):
                with suppress(PromptRejected):
                    return text(plain, begun_by_user(talk))
            raise

    def _described(self, message: ChatMessage, features: TemplateFeatures, cleaning: Cleaning) -> Rendered:
        rendered = described(
            message,
            cleaning.own if message.role == "assistant" else cleaning.foreign,
            cleaning.foreign,  # a call has no reasoning of its own, and quotes what others have said
            short_ids=self.tool_format.name == "mistral" or not features.long_ids,
            json_arguments=features.json_arguments,
        )
        if message.reasoning:
            rendered["reasoning_content"] = cleaning.foreign(message.reasoning)
        return rendered

    def _render(
        self,
        talk: Sequence[Rendered],
        at: float,
        tools: Sequence[Any] = (),
        tools_in: ToolsIn = ToolsIn.TEXT,
        values: Mapping[str, TemplateValue] = NONE,
        *,
        continues: bool = False,
        is_patient: bool = False,
    ) -> str:
        if not self.has_template:
            return plain_prompt(talk, continues=continues)
        name = _VARIABLES.get(tools_in)
        given = tools if name else ()
        return self._template.render(
            talk, given, at, continues=continues, tools_name=name or "tools", values=values, is_patient=is_patient
        )

    def tried(self, talk: Sequence[Rendered], tools: Sequence[Any], tools_in: ToolsIn) -> str:
        """The text of a sentinel conversation, with the tools as `shaped` puts them; raises `PromptError`."""
        if tools_in is ToolsIn.SYSTEM_MESSAGE:
            talk = in_system(list(talk), tools)
        return self._render(talk, 0.0, tools, tools_in, is_patient=True)

    def _reasoning(self, text: str, *, continues: bool) -> Reasoning | None:
        """How the answer to this prompt begins."""
        if text.rstrip().endswith(self._tags.begin):
            return Reasoning.OPENED
        return Reasoning.POSSIBLE if self._may_reason and not continues else None

    @cached_property
    def _reasoning_variable(self) -> str | None:
        """The variable by which the template is asked to reason; tried once, at the first request that asks."""
        if self._changes_by(_EFFORT, "low", "high"):
            return _EFFORT
        return next((name for name in _SWITCHES if self._changes_by(name, False, True)), None)

    def _changes_by(self, name: str, *values: TemplateValue) -> bool:
        """Whether the template's text depends on this variable."""
        with suppress(PromptError):
            texts = [self._render([user("qzu1")], 0.0, values={name: value}, is_patient=True) for value in values]
            return len({*texts}) > 1
        return False

    def _must_fit(self, ids: Sequence[int]) -> None:
        if len(ids) >= self._context_length:
            raise PromptTooLong(f"the prompt has {len(ids)} tokens; the model takes {self._context_length - 1} at most")


def _built(
    ids: Sequence[int],
    turns_used: int,
    shared: int,
    reasoning: Reasoning | None = None,
    plain: PlainStart | None = None,
) -> BuiltPrompt:
    digest = hashlib.blake2b(array("I", ids).tobytes(), digest_size=8).hexdigest()
    return BuiltPrompt(tuple(ids), turns_used, digest, shared, reasoning, plain)
