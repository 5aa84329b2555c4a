"""Records of `comparisons`: answers of two arms of an experiment to the same request (`shadow` in the policy file)."""

from __future__ import annotations

import msgspec


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer of `shadow_arm`, which no user has seen, has in common with the answer of `arm`.

    The record holds figures and neither text nor user, so an erasure need not reach it. `rouge_l` is the F1 of ROUGE-L
    of the first 4,096 words, from 0 to 1. `error` says why the shadow has no answer; there is nothing to compare then.
    """

    request_id: str
    experiment: str
    arm: str
    shadow_arm: str
    shadow_model: str
    created_at: int
    tenant: str | None = None
    is_same: bool = False
    rouge_l: float = 0.0
    tokens: int = 0
    shadow_tokens: int = 0
    shadow_prompt_tokens: int = 0
    shadow_first_token_ms: int | None = None
    shadow_duration_ms: int = 0
    shadow_cost: float = 0.0
    error: str | None = None
