"""How an answer's tokens are drawn inside vLLM's processes, as plain data in `SamplingParams.extra_args`.

vLLM's own sampler draws from a generator per request, and its grammars begin with the first token that it computes.
So what must go on in the middle of an answer is drawn by Parley's sampler and kept to Parley's constraints, by a
logits processor (`processor.py`) that leaves vLLM one token to choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from models.interface.generation import ConstraintKind, Job, OutputConstraint, Sampling

KEY = "parley"
COLDEST = 1e-5  # as models/drawing/sampler.py, which imports torch


@dataclass(frozen=True, slots=True)
class OwnDraws:
    """`generated`: how many tokens at the end of the prompt are the beginning of the answer."""

    sampling: Sampling
    generated: int
    min_tokens: int
    constraint: OutputConstraint | None

    @classmethod
    def of(cls, job: Job) -> Self | None:
        """None for an answer that vLLM's sampler draws as well: the likeliest token of each step."""
        sampling = job.sampling
        if sampling.temperature <= COLDEST and not sampling.changes_logits and job.constraint is None:
            return None
        return cls(sampling, len(job.generated), job.min_tokens, job.constraint)

    def written(self) -> dict[str, Any]:
        """As `SamplingParams.extra_args`."""
        rule = self.constraint
        given = {
            "sampling": asdict(self.sampling) | {"logit_bias": [list(pair) for pair in self.sampling.logit_bias]},
            "generated": self.generated,
            "min_tokens": self.min_tokens,
            "constraint": None if rule is None else [str(rule.kind), rule.rule],
        }
        return {KEY: given}

    @classmethod
    def read(cls, extra: Mapping[str, Any] | None) -> Self | None:
        """None if there are none in it."""
        given = (extra or {}).get(KEY)
        if given is None:
            return None
        biases = tuple((int(token), float(bias)) for token, bias in given["sampling"]["logit_bias"])
        sampling = Sampling(**{**given["sampling"], "logit_bias": biases})
        rule = given["constraint"]
        constraint = None if rule is None else OutputConstraint(ConstraintKind(rule[0]), rule[1])
        return cls(sampling, int(given["generated"]), int(given["min_tokens"]), constraint)
