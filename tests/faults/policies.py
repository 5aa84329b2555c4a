"""Policy files that differ from worker to worker, so that no two of them would decide alike about an answer."""

from __future__ import annotations

import random

import msgspec

from app.policy.tools import ApproveRules
from tests.faults.desks import DESK
from tests.faults.tool_verdict import APPROVED_TOOL

_MODELS = """
[models.small]
path = "small"
engine = "paced"
paced_tokens_per_s = 15
"""
_RELIEF = """
[[routes]]
name = "relief"
when = {{ first_token_p95_ms_above = {above} }}
model = "small"
notice = "degraded"
"""
_SHORT = """
[[routes]]
name = "short"
when = {{ prompt_tokens_below = {below} }}
model = "small"
"""
_TONE = """
[[routes]]
name = "tone"
experiment = "tone"
arms = [{{ model = "default", weight = {weight} }}, {{ model = "small", weight = 50 }}]
"""


_FALLBACK = """
[fallback]
chain = ["default", "small"]
failures = 1000000
[cache]
ttl_s = {ttl_s}
[recall]
budget_ms = {budget_ms}
"""

_SLEEPS = """
[waits]
park_after_s = {park_after_s}
[tools.{tool}]
approve = {{ by = "{by}", within_s = {within_s}, otherwise = "{otherwise}" }}
"""
APPROVALS = ApproveRules(by=DESK, within_s=6.0)


def sleeping_policy(chance: random.Random) -> str:
    """Answers that wait fall asleep, at once or after some seconds."""
    park_after_s = chance.choice((0.05, 0.5, 2.0))
    return _SLEEPS.format(tool=APPROVED_TOOL, park_after_s=park_after_s, **msgspec.structs.asdict(APPROVALS))


def some_policy(chance: random.Random) -> str:
    """Routes by prompt length, by arm and by load, in any order; a chain, a cache, and time to recall or none."""
    routes = [
        _RELIEF.format(above=chance.choice((0, 150, 5000))),
        _SHORT.format(below=chance.randint(15, 24)),
        _TONE.format(weight=chance.randint(1, 200)),
    ]
    fallback = _FALLBACK.format(ttl_s=chance.choice((1, 20)), budget_ms=chance.choice((20, 500)))
    return _MODELS + "".join(chance.sample(routes, chance.randint(1, 3))) + fallback
