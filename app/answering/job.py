"""From a dialogue to a job for an engine: which prompt, how many tokens, which form."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from app.answering.dialogue import (
    Dialogue,
    check_dialogue,
    messages_of,
    past_turns_of,
    question_of,
    steps_of,
)
from app.private.forms import MaskedForm
from app.settings import Settings
from app.wire.ids import seed_for
from app.wire.record_size import MAX_RECORD_BYTES
from app.wire.request import MAX_PROMPT_LOGPROBS, Priority, Request, Role
from app.wire.response_format import FormatType, ResponseFormat
from app.wire.tools import TOOL_ROUNDS, NamedTool
from app.wire.validation import prompt_bytes
from models.interface.chat import PastTurn
from models.interface.generation import (
    ConstraintKind,
    GenerationDefaults,
    Job,
    JobPriority,
    LowConfidence,
    OutputConstraint,
    Sampling,
)
from models.prompts.builder import BuiltPrompt, PromptTooSlow
from models.prompts.chat_template import NONE, TemplateValue
from models.served.registry import Prompts, ServedModel
from models.tools import ModelTool, ToolChoice, tool_constraint
from models.tools.format import ToolFormat

PRIORITIES = MappingProxyType(
    {
        Priority.INTERACTIVE: JobPriority.INTERACTIVE,
        Priority.STANDARD: JobPriority.STANDARD,
        Priority.BATCH: JobPriority.BATCH,
    }
)

_DEFAULTS = tuple(field.name for field in dataclasses.fields(GenerationDefaults))
_SAMPLED = tuple(field.name for field in dataclasses.fields(Sampling) if field.name in Request.__struct_fields__)
# Tokenizing a shorter text takes a millisecond or two; a longer one would block the event loop.
_INLINE_BYTES = 8192
_ENTRY_BYTES = 100
"""Of a log probability in an event, beside the token's text."""


class UnsupportedError(ValueError):
    """The request asks for what this model or service does not give; one line for the sender."""


async def prompt_of(dialogue: Dialogue, model: ServedModel, settings: Settings, at: int) -> BuiltPrompt:
    """Build the prompt as of the time `at`, Unix milliseconds. Building it again gives the same prompt.

    Raises:
        PromptTooLong: the prompt does not fit the model's context, even without earlier turns.
        PromptError: the model's chat template rejects it.
        DialogueError: the conversation does not have what the request refers to.
        UnsupportedError: the log probabilities of this prompt cannot be reported.
    """
    request, memory = dialogue.request, dialogue.memory
    rounds = dialogue.rounds.steps if dialogue.rounds.rounds else ()
    reserve = min(request.max_tokens or settings.max_tokens, model.engine.context_length // 4)

    check_dialogue(request, memory)
    past = past_turns_of(request, memory) if request.sees_conversation else []
    recalled = [PastTurn(turn.prompt, turn.answer) for turn in dialogue.recalled]

    def build() -> BuiltPrompt:
        if request.prompt_token_ids is not None:
            return model.prompts.of_ids(request.prompt_token_ids)
        if request.raw:
            return model.prompts.raw(request.prompt or "")
        return model.prompts.build(
            settings.system_prompt,
            past,
            question_of(request, memory),
            None if request.prompt is not None else messages_of(request, memory, rounds),
            recalled=recalled,
            steps=(*steps_of(request, memory), *rounds),
            tools=tools_of(dialogue),
            continues=request.continue_final_message,
            reserve=reserve,
            at=at / 1000,
            template_values=template_values_of(request, model.prompts),
        )

    size = sum(len(turn.prompt) + len(turn.answer) for turn in (*recalled, *past)) + prompt_bytes(request)
    size += sum(len(message.content) for message in rounds)
    try:
        prompt = build() if size < _INLINE_BYTES else await asyncio.to_thread(build)
    except PromptTooSlow:
        prompt = await asyncio.to_thread(build)
    if request.prompt_logprobs is not None:
        _check_prompt_logprobs(request, request.prompt_logprobs, prompt, settings)
    return prompt


def template_values_of(request: Request, prompts: Prompts) -> Mapping[str, TemplateValue]:
    """The further variables of the template; raises `PromptError`. What is given by name counts more than an effort."""
    effort = request.reasoning_effort
    by_effort = NONE if effort is None else prompts.values_of_effort(effort)
    return {**by_effort, **(request.chat_template_kwargs or {})}


def _check_prompt_logprobs(request: Request, top: int, prompt: BuiltPrompt, settings: Settings) -> None:
    has_own_system = any(message.role is Role.SYSTEM for message in request.messages or ())
    if settings.system_prompt and not request.is_raw and not has_own_system:
        raise UnsupportedError(
            "prompt_logprobs: they would reveal this service's system prompt; send a system message of your own, or a "
            "raw prompt"
        )
    if len(prompt.ids) * (1 + top) > MAX_PROMPT_LOGPROBS:
        raise UnsupportedError(
            f"prompt_logprobs: {len(prompt.ids)} tokens with {top} alternatives each are more than "
            f"{MAX_PROMPT_LOGPROBS} entries"
        )
    # Each token of the prompt is quoted, and an escape in JSON has six characters.
    size = _ENTRY_BYTES * len(prompt.ids) * (1 + top) + 6 * prompt_bytes(request)
    if size > MAX_RECORD_BYTES:
        raise UnsupportedError(
            f"prompt_logprobs: they would be some {size} bytes, and one event has {MAX_RECORD_BYTES}"
        )


def tools_of(dialogue: Dialogue) -> list[ModelTool]:
    """The tools that the answer may call now. A `tool_choice` that demands a call is for the first round."""
    request, rounds = dialogue.request, dialogue.rounds.rounds
    if len(rounds) >= TOOL_ROUNDS:
        return []
    choice = request.tool_choice if not rounds or request.tool_choice == "none" else "auto"
    return [
        ModelTool(
            one.function.name,
            one.function.description or "",
            one.function.parameters or {},
            is_strict=one.function.strict is True,
        )
        for one in request.tools or ()
        if choice != "none" and (not isinstance(choice, NamedTool) or choice.function.name == one.function.name)
    ]


def job_of(
    dialogue: Dialogue,
    prompt: BuiltPrompt,
    model: ServedModel,
    settings: Settings,
    generated: Sequence[int] = (),
    logprobs: Sequence[float] = (),
) -> Job:
    """The job of the current round; `generated` are the tokens of it that readers have already, in the vocabulary of
    the model, and `logprobs` the log probabilities of the last tokens.

    Raises:
        UnsupportedError: the model does not give what the request asks for.
    """
    request, rounds = dialogue.request, dialogue.rounds
    for name, is_set in (("best_of", (request.best_of or 1) > 1), ("stop_when", request.stop_when is not None)):
        if is_set and not model.has_logprobs:
            raise UnsupportedError(f"{name}: needs log probabilities, which this model's engine does not report")
    room = model.engine.context_length - len(prompt.ids)
    written = rounds.end if rounds.rounds else 0
    max_tokens = min((request.max_tokens or settings.max_tokens) - written, room)
    least = max(0, (request.min_tokens or 0) - written)
    tools, output = tools_of(dialogue), _constraint(request.response_format)
    is_free = not tools and output is None
    reasoning = prompt.reasoning if is_free or model.forms_follow_reasoning else None
    form = model.prompts.tool_format
    if reasoning is not None:
        form = dataclasses.replace(form, after="")  # what precedes the calls is no part of the text
    return Job(
        id=f"{request.user_id}/{request.request_id}",
        prompt=prompt.ids,
        generated=tuple(generated),
        max_tokens=max_tokens,
        sampling=_sampling(request, model, len(rounds.rounds)),
        stop=request.stop_strings,
        priority=PRIORITIES[request.priority],
        user=request.user_id,
        tenant=request.tenant or "",
        shared=prompt.shared,
        adapter=model.adapter,
        constraint=_tool_constraint(dialogue, tools, model, form, output) if tools else output,
        min_tokens=max_tokens if request.ignore_eos else min(least, max_tokens),
        tools=form.reading(tools) if tools else None,
        reasoning=reasoning,
        plain=prompt.plain if output is None and not request.ignore_eos else None,
        prompt_logprobs=None if rounds.rounds else request.prompt_logprobs,
        stop_when=_low_confidence(request, logprobs),
    )


def _low_confidence(request: Request, logprobs: Sequence[float]) -> LowConfidence | None:
    rule = request.stop_when
    if rule is None:
        return None
    return LowConfidence(rule.mean_logprob_below, rule.over, tuple(logprobs[-rule.over :]))


def _sampling(request: Request, model: ServedModel, number: int) -> Sampling:
    """`number` counts the rounds of an answer with tools over Kafka; each draws its tokens with noise of its own."""
    given = {name: value for name in _SAMPLED if (value := getattr(request, name)) is not None}
    seed = given.get("seed", seed_for(request.request_id))
    given |= {
        "top_k": max(0, given.get("top_k", model.defaults.top_k)),
        "seed": seed ^ number,
        "logit_bias": tuple((request.logit_bias or {}).items()),
        "logprobs": (request.top_logprobs or 0) if request.logprobs or request.stop_when is not None else None,
    }
    defaults = {name: getattr(model.defaults, name) for name in _DEFAULTS}
    return Sampling(**{**defaults, **given})


def _tool_constraint(
    dialogue: Dialogue, tools: list[ModelTool], model: ServedModel, form: ToolFormat, content: OutputConstraint | None
) -> OutputConstraint:
    """`content`: that of an answer without calls."""
    request, is_first = dialogue.request, not dialogue.rounds.rounds
    named = is_first and isinstance(request.tool_choice, NamedTool)
    is_required = named or (is_first and request.tool_choice == "required")
    if dialogue.mask:
        shown = MaskedForm(dialogue.mask, hides=False)
        tools = [dataclasses.replace(tool, parameters=shown.schema(tool.parameters)) for tool in tools]
    return tool_constraint(
        form,
        tools,
        ToolChoice.REQUIRED if is_required else ToolChoice.AUTO,
        is_single=named or request.parallel_tool_calls is False or model.prompts.has_single_calls,
        marker=model.prompts.tool_marker,
        content=content,
    )


def _constraint(form: ResponseFormat | None) -> OutputConstraint | None:
    """Keep the order in which the schema names its properties; the answer uses the same order."""
    if form is None or form.type is FormatType.TEXT:
        return None
    if form.regex is not None:
        return OutputConstraint(ConstraintKind.REGEX, form.regex)
    if form.grammar is not None:
        return OutputConstraint(ConstraintKind.GRAMMAR, form.grammar)
    if form.choices is not None:
        return OutputConstraint(ConstraintKind.CHOICES, json.dumps(form.choices))
    schema = {"type": "object"} if form.json_schema is None else form.json_schema.schema_
    return OutputConstraint(ConstraintKind.JSON, json.dumps(schema))
