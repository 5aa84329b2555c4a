"""Turn a request into a job for an engine: which model, which prompt, how many tokens, which deadline."""

from __future__ import annotations

import asyncio
import json
from types import MappingProxyType

from app.delivery.inflight import InFlightRequest
from app.settings import Settings
from app.wire.ids import seed_for
from app.wire.request import Priority as RequestPriority
from app.wire.request import Request
from app.wire.response_format import FormatType, ResponseFormat
from models.generation import Job, OutputConstraint, Priority, Sampling, ShapeKind
from models.prompts import BuiltPrompt
from models.registry import ModelRegistry, ServedModel
from tables.records import Turn

PRIORITIES = MappingProxyType(
    {
        RequestPriority.INTERACTIVE: Priority.INTERACTIVE,
        RequestPriority.STANDARD: Priority.STANDARD,
        RequestPriority.BATCH: Priority.BATCH,
    }
)

# Tokenizing a shorter text takes a millisecond or two; a longer one would block the event loop.
_INLINE_BYTES = 8192


def serving_of(inflight: InFlightRequest, servings: ModelRegistry) -> ServedModel | None:
    """The model that answers: the one that has already begun the answer, else the one that the request names. None if
    no model has that name.
    """
    recovered = inflight.recovered.segments if inflight.recovered else ()
    began = servings.find(recovered[0].model_version or "") if recovered else None
    return began or servings.find(inflight.request.model)


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
    """
    request = inflight.request
    history = [(turn.prompt, turn.answer) for turn in memory] if request.messages is None else []
    reserve = min(request.max_tokens or settings.max_tokens, serving.engine.context_length // 4)

    def build() -> BuiltPrompt:
        return serving.prompts.build(
            settings.system_prompt,
            history,
            request.prompt,
            request.messages,
            reserve=reserve,
            at=inflight.at / 1000,
        )

    size = sum(len(text) for text in (*(text for turn in history for text in turn), request.question))
    return build() if size < _INLINE_BYTES else await asyncio.to_thread(build)


def job_of(inflight: InFlightRequest, prompt: BuiltPrompt, serving: ServedModel, settings: Settings) -> Job:
    request = inflight.request
    room = serving.engine.context_length - len(prompt.ids)
    return Job(
        id=f"{request.user_id}/{request.request_id}",
        prompt=prompt.ids,
        generated=inflight.recovered.tokens if inflight.recovered else (),
        max_tokens=min(request.max_tokens or settings.max_tokens, room),
        sampling=_sampling(request, serving),
        stop=request.stop_strings,
        priority=PRIORITIES[request.priority],
        user=request.user_id,
        tenant=request.tenant or "",
        shared=prompt.shared,
        adapter=serving.adapter,
        shape=_shape(request.response_format),
    )


def _sampling(request: Request, serving: ServedModel) -> Sampling:
    defaults = serving.defaults
    return Sampling(
        temperature=defaults.temperature if request.temperature is None else request.temperature,
        top_p=defaults.top_p if request.top_p is None else request.top_p,
        top_k=defaults.top_k if request.top_k is None else request.top_k,
        seed=seed_for(request.request_id) if request.seed is None else request.seed,
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=request.repetition_penalty or 1.0,
        logit_bias=tuple((request.logit_bias or {}).items()),
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
    )


def _shape(form: ResponseFormat | None) -> OutputConstraint | None:
    """Keep the order in which the schema names its properties; the answer uses the same order."""
    if form is None or form.type is FormatType.TEXT:
        return None
    if form.regex is not None:
        return OutputConstraint(ShapeKind.REGEX, form.regex)
    if form.choices is not None:
        return OutputConstraint(ShapeKind.CHOICES, json.dumps(form.choices))
    schema = {"type": "object"} if form.json_schema is None else form.json_schema.schema_
    return OutputConstraint(ShapeKind.JSON, json.dumps(schema))
