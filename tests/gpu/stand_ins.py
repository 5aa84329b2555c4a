"""llguidance and msgspec where they are missing: the engine imports them, and only forms of answers use them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

NAMES = ("llguidance", "msgspec")


class StandIn:
    """Whatever is asked of it, it is another one."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> StandIn:
        return StandIn()

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()


def put_in() -> list[str]:
    """The names of those that were put in. Before the engine is imported."""
    missing = [name for name in NAMES if name not in sys.modules and find_spec(name) is None]
    for name in missing:
        for path in (name, f"{name}.hf", f"{name}.json"):
            made = ModuleType(path)
            vars(made).update(
                LLMatcher=StandIn,
                LLTokenizer=StandIn,
                TokenizerWrapper=StandIn,
                from_tokenizer=StandIn,
                DecodeError=ValueError,
                Encoder=StandIn,
                Decoder=StandIn,
            )
            sys.modules[path] = made
        sys.modules[name].json = sys.modules[f"{name}.json"]  # type: ignore[attr-defined]
    return missing
