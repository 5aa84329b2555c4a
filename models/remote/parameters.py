"""A job as the parameters of a chat completion or a completion."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from models.interface.generation import LEAST_TOP_P, ConstraintKind, Job, OutputConstraint
from models.remote.answer import count_of

_OPENAI = frozenset({"temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs"})
"""Parameters of `Sampling` that OpenAI's API has, too."""


class ParameterError(ValueError):
    """The server's API cannot express the job; the message is one line that names the parameter."""


def parameters_of(job: Job, model: str, room: int, *, is_vllm: bool) -> dict[str, Any]:
    """Without the messages. `room`: as many tokens as no job asks for; such a job has no `max_tokens` of its own.

    Raises `ParameterError`.
    """
    sampling = job.sampling
    given: dict[str, Any] = {
        "model": model,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p or LEAST_TOP_P,
        "seed": job.seed_of_rest,
    }
    if job.max_tokens < room:
        given["max_tokens"] = max(1, job.max_tokens - count_of(job.generated))
    if job.stop and not is_vllm:  # with token ids, the text's end is determined here
        given["stop"] = list(job.stop)
    for name in ("presence_penalty", "frequency_penalty"):
        if getattr(sampling, name):
            given[name] = getattr(sampling, name)
    more = _more(job)
    if more and not is_vllm:
        raise ParameterError(f"{min(more)}: this model's server does not take it")
    if job.constraint is not None:
        _constrain(given, more, job.constraint, is_vllm=is_vllm)
    return {**given, "extra_body": more} if more else given


def _more(job: Job) -> dict[str, Any]:
    """Parameters of vLLM's that OpenAI's API lacks. Raises `ParameterError` for those that no server can take."""
    sampling = job.sampling
    refused = {
        "logit_bias": sampling.logit_bias,
        "logprobs": sampling.logprobs is not None,
        "prompt_logprobs": job.prompt_logprobs is not None,
    }
    for name, is_set in refused.items():
        if is_set:
            raise ParameterError(f"{name}: this model is behind an outside server, whose token ids are not known here")
    given = {
        field.name: value
        for field in fields(sampling)
        if field.name not in _OPENAI and (value := getattr(sampling, field.name)) != field.default
    }
    least = job.min_tokens - count_of(job.generated)
    return {**given, "min_tokens": min(least, job.max_tokens - count_of(job.generated))} if least > 0 else given


def _constrain(given: dict[str, Any], more: dict[str, Any], constraint: OutputConstraint, *, is_vllm: bool) -> None:
    if constraint.kind is ConstraintKind.JSON:
        schema = {"name": "answer", "schema": json.loads(constraint.rule), "strict": True}
        given["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif not is_vllm:
        raise ParameterError(f"response_format: this model's server has no {constraint.kind}")
    elif constraint.kind is ConstraintKind.CHOICES:
        more["structured_outputs"] = {"choice": json.loads(constraint.rule)}
    else:
        name = "regex" if constraint.kind is ConstraintKind.REGEX else "grammar"
        more["structured_outputs"] = {name: constraint.rule}
