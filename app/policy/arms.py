"""Which arm of an experiment a user has.

Weighted rendezvous hashing (Schindelhauer and Schomaker, "Weighted distributed hash tables", 2005): every arm gets a
score from the hash of the user and the arm, scaled by its weight, and the highest score wins. A user therefore keeps an
arm unless that arm loses weight against the others: when a new arm takes 5 %, only those 5 % move, and no user moves
between the other arms.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from app.policy.file import Arm


def arm_of(experiment: str, user_id: str, arms: Sequence[Arm]) -> Arm:
    """The arm of the user. `arms` has at least one with a weight above 0."""
    return max((arm for arm in arms if arm.weight), key=lambda arm: (_score(experiment, user_id, arm), arm.model))


def _score(experiment: str, user_id: str, arm: Arm) -> float:
    place = f"{experiment}\0{arm.model}\0{user_id}"
    number = int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest())
    return -arm.weight / math.log((number + 1) / (2**64 + 1))
