"""Convert a job to vLLM's form: a prompt of token ids, and sampling parameters."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from models.interface.generation import LEAST_TOP_P, ConstraintKind, Job, OutputConstraint, Sampling
from models.structured.tool_grammar import lark_of_tools
from models.tools.rule import tool_rule
from models.vllm.own_draws import OwnDraws


def prompt_of(job: Job) -> dict[str, Any]:
    """A `TokensPrompt`: the prompt, then the tokens of the answer so far. Only requests of one user share prefixes."""
    return {"prompt_token_ids": [*job.prompt, *job.generated], "cache_salt": f"{job.tenant}\0{job.user}"}


def sampling_of(job: Job, eos: frozenset[int], room: int, *, is_drawn_here: bool = True) -> Any:
    """`SamplingParams` for at most `room` more tokens; raises vLLM's own error if it rejects them.

    Text and stop strings are derived here, so vLLM returns tokens only. `is_drawn_here`: Parley's sampler draws inside
    vLLM (own_draws.py) what vLLM's own could not repeat.
    """
    from vllm.sampling_params import (  # type: ignore[import-not-found,unused-ignore]
        RequestOutputKind,
        SamplingParams,
        StructuredOutputsParams,
    )

    given: dict[str, Any] = {
        "prompt_logprobs": None if job.generated else job.prompt_logprobs,
        "logprobs": job.sampling.logprobs,
        "max_tokens": room,
        "stop_token_ids": sorted(eos),
        "detokenize": False,
        "output_kind": RequestOutputKind.DELTA,
    }
    own = OwnDraws.of(job) if is_drawn_here else None
    if own is not None:
        return SamplingParams(temperature=0.0, extra_args=own.written(), **given)
    return SamplingParams(
        **_changed(job.sampling) | given,
        seed=job.seed_of_rest,
        logit_bias=dict(job.sampling.logit_bias) or None,
        min_tokens=max(0, min(job.min_tokens - len(job.generated), room)),
        structured_outputs=None if job.constraint is None else StructuredOutputsParams(**structure_of(job.constraint)),
    )


def _changed(sampling: Sampling) -> dict[str, Any]:
    """What differs from the defaults, which are vLLM's, too: a parameter that vLLM does not know fails only the jobs
    that use it.
    """
    given = {field.name: (getattr(sampling, field.name), field.default) for field in fields(sampling)}
    own = {"seed", "logit_bias"}
    changed = {name: value for name, (value, default) in given.items() if name not in own and value != default}
    if changed.get("top_p") == 0:
        changed["top_p"] = LEAST_TOP_P
    return changed


def structure_of(constraint: OutputConstraint) -> dict[str, Any]:
    match constraint.kind:
        case ConstraintKind.JSON:
            return {"json": constraint.rule, "disable_any_whitespace": True}
        case ConstraintKind.REGEX:
            return {"regex": constraint.rule}
        case ConstraintKind.CHOICES:
            return {"choice": json.loads(constraint.rule)}
        case ConstraintKind.GRAMMAR:
            return {"grammar": constraint.rule}
        case ConstraintKind.TOOLS:
            return {"grammar": lark_of_tools(tool_rule(constraint))}
