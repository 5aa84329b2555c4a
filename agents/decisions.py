"""The parts that decide about an answer before its first token; each writes what it decides to the answer's plan."""

from __future__ import annotations

from dataclasses import dataclass

from agents.masking import Masking
from agents.moderating import Moderating
from agents.recalling import Recalling
from app.policy.planner import Planner


@dataclass(frozen=True, slots=True)
class Decisions:
    """
    planner: Which model answers.
    masking: Which private values are hidden.
    moderating: Whether the guard blocks or flags it.
    recalling: Which older turns stand in its prompt.
    """

    planner: Planner
    masking: Masking
    moderating: Moderating
    recalling: Recalling
