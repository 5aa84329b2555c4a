"""Random answers: a model that knows nothing, bound by a constraint alone."""

from __future__ import annotations

import random
import re
from functools import cache
from typing import Any

import jsonschema
import numpy as np
from transformers import AutoTokenizer

from models.files.checkpoint import DEMO
from models.interface.generation import OutputConstraint
from models.structured import ConstraintCompiler, Matcher

LONGEST = 400
_RFC3339_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)")

FORMATS = jsonschema.FormatChecker(["date", "uuid", "ipv4", "email"])
FORMATS.checks("time")(lambda text: not isinstance(text, str) or bool(_RFC3339_TIME.fullmatch(text)))


@cache
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(DEMO)


def eos() -> int:
    return int(tokenizer().eos_token_id)


def constraints() -> ConstraintCompiler:
    return ConstraintCompiler(tokenizer(), len(tokenizer()), frozenset({eos()}))


def tokens_of(allowed: bytes) -> list[int]:
    found: list[int] = np.unpackbits(np.frombuffer(allowed, np.uint8), bitorder="little").nonzero()[0].tolist()
    return found


@cache
def closing() -> frozenset[int]:
    """Tokens that end a string, an array or an object, or go on behind one."""
    texts = ((token, tokenizer().decode([token])) for token in range(len(tokenizer())))
    return frozenset(token for token, text in texts if text[:1] in {'"', "}", "]", ","})


def walk(matcher: Matcher, seed: int) -> str | None:
    """The text of one answer; None where it found no end."""
    chance = random.Random(seed)
    generated: list[int] = []
    while not matcher.complete:
        if len(generated) == LONGEST:
            return None
        allowed = tokens_of(matcher.allowed())
        if eos() in allowed and (chance.random() < 0.5 or len(generated) > 100):
            break
        last = [token for token in allowed if len(generated) > 60 and token in closing()]
        generated.append(chance.choice(last or [token for token in allowed if token != eos()]))
        matcher.advance(generated[-1])
    return str(tokenizer().decode(generated))


def matcher_of(kept: ConstraintCompiler, constraint: OutputConstraint) -> Matcher:
    return kept.ask(constraint).result(timeout=30).copy()


def check(answer: Any, schema: dict[str, Any]) -> None:
    """Raise `jsonschema.ValidationError` where `answer` is not what `schema` describes."""
    jsonschema.validate(answer, schema, cls=jsonschema.Draft202012Validator, format_checker=FORMATS)
