"""Turn a request into a job for an engine: which model, which prompt, how many tokens, which deadline."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from itertools import chain
from types import MappingProxyType

from agents.candidates import sampling_of_candidate
from agents.dialogue import chat_message, check_dialogue, history_of, question_of, steps_of
from agents.off_loop import off_loop
from agents.seen import seen_by_model, seen_now, seen_steps, seen_turns, size_of
from app.delivery.inflight import InFlightRequest
from app.settings import Settings
from app.wire.event import RecalledTurn
from app.wire.ids import seed_for
from app.wire.limits import MAX_PROMPT_LOGPROBS, MAX_RECORD_BYTES, TOOL_ROUNDS
from app.wire.request import Priority as RequestPriority
from app.wire.request import Request, Role
from app.wire.response_format import FormatType, ResponseFormat
from app.wire.tools import NamedTool
from app.wire.validation import prompt_bytes
from models.chat import ChatMessage, PastTurn
from models.generation import ConstraintKind, Job, LowConfidence, OutputConstraint, Priority, Sampling
from models.private.forms import Form
from models.prompts import BuiltPrompt, PromptTooSlow
from models.registry import ModelRegistry, ServedModel
from models.tools import Tool, ToolChoice, tool_constraint
from tables.records import Turn

PRIORITIES = MappingProxyType(
    {
        RequestPriority.INTERACTIVE: Priority.INTERACTIVE,
        RequestPriority.STANDARD: Priority.STANDARD,
        RequestPriority.BATCH: Priority.BATCH,
    }
)

_SAMPLED = tuple(field.name for field in dataclasses.fields(Sampling) if field.name in Request.__struct_fields__)
# Tokenizing a shorter text takes a millisecond or two; a longer one would block the event loop.
_INLINE_BYTES = 8192
_ENTRY_BYTES = 100
"""Of a log probability in an event, beside the token's text."""


class UnsupportedError(ValueError):
    """The request asks for what this model or service does not give; one line for the sender."""


def serving_of(inflight: InFlightRequest, servings: ModelRegistry) -> ServedModel | None:
    """The model that answers: the one that has already begun the answer, else the one of the plan, else the one that
    the request names. None if no model has that name.
    """
    written = inflight.written
    began = servings.decided(written[0].model_version or "") if written else None
    planned = servings.decided(inflight.plan.model) if inflight.plan.model else servings.find(inflight.request.model)
    return began or planned


def left_of(inflight: InFlightRequest, now: int) -> float | None:
    """Seconds until the request's deadline, None if it has none. `now` is the broker's clock in Unix milliseconds."""
    if inflight.request.deadline_ms is None:
        return None
    return (min(inflight.record.timestamp, now) + inflight.request.deadline_ms - now) / 1000


async def prompt_of(
    inflight: InFlightRequest, memory: tuple[Turn, ...], serving: ServedModel, settings: Settings
) -> BuiltPrompt:
    """Build the prompt as of the request's time. Building it again gives the same prompt.

    Raises:
        PromptTooLong: the prompt does not fit the model's context, even without history.
        PromptError: the model's chat template rejects it.
        DialogueError: the conversation does not have what the request refers to.
        UnsupportedError: the log probabilities of this prompt cannot be reported.
    """
    request = await seen_by_model(inflight)
    memory, rounds, recalled = await _seen_before(inflight, memory)
    reserve = min(request.max_tokens or settings.max_tokens, serving.engine.context_length // 4)

    check_dialogue(request, memory)
    whole = request.messages is not None and request.previous_request_id is None
    history = [] if whole else history_of(request, memory)

    def build() -> BuiltPrompt:
        if request.prompt_token_ids is not None:
            return serving.prompts.of_ids(request.prompt_token_ids)
        if request.raw:
            return serving.prompts.raw(request.prompt or "")
        return serving.prompts.build(
            settings.system_prompt,
            history,
            question_of(request, memory),
            None if request.messages is None else [*(chat_message(one) for one in request.messages), *rounds],
            recalled=recalled,
            steps=(*steps_of(request, memory), *rounds),
            tools=tools_of(inflight),
            continues=request.continue_final_message,
            reserve=reserve,
            at=inflight.at / 1000,
        )

    size = sum(len(turn.prompt) + len(turn.answer) for turn in (*recalled, *history)) + prompt_bytes(request)
    size += sum(len(message.content) for message in rounds)
    try:
        prompt = build() if size < _INLINE_BYTES else await asyncio.to_thread(build)
    except PromptTooSlow:
        prompt = await asyncio.to_thread(build)
    if request.prompt_logprobs is not None:
        _check_prompt_logprobs(request, request.prompt_logprobs, prompt, settings)
    return prompt


async def _seen_before(
    inflight: InFlightRequest, memory: tuple[Turn, ...]
) -> tuple[tuple[Turn, ...], tuple[ChatMessage, ...], list[PastTurn]]:
    """The conversation's turns, the rounds of calls and the recalled turns, as the model sees them."""
    mask, steps, older = inflight.mask, inflight.rounds.steps, inflight.plan.recalled or ()

    def see() -> tuple[tuple[Turn, ...], tuple[ChatMessage, ...], list[PastTurn]]:
        recalled = [PastTurn(mask.hide(turn.prompt), mask.hide(turn.answer)) for turn in older]
        return seen_turns(memory, mask), seen_steps(steps, mask), recalled

    size = size_of(turn.prompt + turn.answer for turn in chain[Turn | RecalledTurn](memory, older))
    size += size_of(one.content for one in chain(steps, *((*turn.before, *turn.steps) for turn in memory)))
    return await off_loop(size if mask else 0, see)


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


def tools_of(inflight: InFlightRequest) -> list[Tool]:
    """The tools that the answer may call now. A `tool_choice` that demands a call is for the first round."""
    request, rounds = inflight.request, inflight.rounds.rounds
    if len(rounds) >= TOOL_ROUNDS:
        return []
    choice = request.tool_choice if not rounds or request.tool_choice == "none" else "auto"
    return [
        Tool(
            one.function.name,
            one.function.description or "",
            one.function.parameters or {},
            is_strict=one.function.strict is True,
        )
        for one in request.tools or ()
        if choice != "none" and (not isinstance(choice, NamedTool) or choice.function.name == one.function.name)
    ]


def job_of(
    inflight: InFlightRequest,
    prompt: BuiltPrompt,
    serving: ServedModel,
    settings: Settings,
    generated: Sequence[int] = (),
    logprobs: Sequence[float] = (),
) -> Job:
    """The job of the current round; `generated` are the tokens of it that readers have already, in the vocabulary of
    the model, and `logprobs` the log probabilities of the last tokens.

    Raises:
        UnsupportedError: the model does not give what the request asks for.
    """
    request = seen_now(inflight)
    for name, is_set in (("best_of", (request.best_of or 1) > 1), ("stop_when", request.stop_when is not None)):
        if is_set and not serving.has_logprobs:
            raise UnsupportedError(f"{name}: needs log probabilities, which this model's engine does not report")
    room = serving.engine.context_length - len(prompt.ids)
    rounds = inflight.rounds
    max_tokens = min((request.max_tokens or settings.max_tokens) - rounds.end, room)
    least = max(0, (request.min_tokens or 0) - rounds.end)
    tools = tools_of(inflight)
    return Job(
        id=f"{request.user_id}/{request.request_id}",
        prompt=prompt.ids,
        generated=tuple(generated),
        max_tokens=max_tokens,
        sampling=sampling_of_candidate(_sampling(request, serving, len(rounds.rounds)), inflight.plan.chosen or 0),
        stop=request.stop_strings,
        priority=PRIORITIES[request.priority],
        user=request.user_id,
        tenant=request.tenant or "",
        shared=prompt.shared,
        adapter=serving.adapter,
        constraint=_tool_constraint(inflight, tools, serving) if tools else _constraint(request.response_format),
        min_tokens=max_tokens if request.ignore_eos else min(least, max_tokens),
        tools=serving.prompts.tool_format if tools else None,
        prompt_logprobs=None if rounds.rounds else request.prompt_logprobs,
        stop_when=_low_confidence(request, logprobs),
    )


def _low_confidence(request: Request, logprobs: Sequence[float]) -> LowConfidence | None:
    rule = request.stop_when
    if rule is None:
        return None
    return LowConfidence(rule.mean_logprob_below, rule.over, tuple(logprobs[-rule.over :]))


def _sampling(request: Request, serving: ServedModel, number: int) -> Sampling:
    """`number` counts the rounds of an answer with tools over Kafka; each draws its tokens with noise of its own."""
    given = {name: value for name in _SAMPLED if (value := getattr(request, name)) is not None}
    seed = given.get("seed", seed_for(request.request_id))
    given |= {
        "top_k": max(0, given.get("top_k", serving.defaults.top_k)),
        "seed": seed ^ number,
        "logit_bias": tuple((request.logit_bias or {}).items()),
        "logprobs": (request.top_logprobs or 0) if request.logprobs or request.stop_when is not None else None,
    }
    return Sampling(**{**dataclasses.asdict(serving.defaults), **given})


def _tool_constraint(inflight: InFlightRequest, tools: list[Tool], serving: ServedModel) -> OutputConstraint:
    request, is_first = inflight.request, not inflight.rounds.rounds
    named = is_first and isinstance(request.tool_choice, NamedTool)
    is_required = named or (is_first and request.tool_choice == "required")
    if inflight.mask:
        form = Form(inflight.mask, hides=False)
        tools = [dataclasses.replace(tool, parameters=form.schema(tool.parameters)) for tool in tools]
    return tool_constraint(
        serving.prompts.tool_format,
        tools,
        ToolChoice.REQUIRED if is_required else ToolChoice.AUTO,
        is_single=named or request.parallel_tool_calls is False or serving.prompts.has_single_calls,
        marker=serving.prompts.tool_marker,
        content=_constraint(request.response_format),
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
