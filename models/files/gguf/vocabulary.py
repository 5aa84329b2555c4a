"""A tokenizer as a GGUF file describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from models.files.errors import CheckpointError


class TokenKind(IntEnum):
    """As llama.cpp numbers them."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Ends of an answer that files name by their text only, with llama.cpp's list as the guide.
ENDS_OF_TURN = frozenset(("<end_of_turn>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>"))
_PREFIXED_MODELS = frozenset(("llama",))
_BOS_BY_DEFAULT = frozenset(("llama-bpe", "llama3", "llama-v3"))


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """`scores` order the merges of SentencePiece's BPE, `merges` those of a byte-level one. Ids are None if absent."""

    model: str
    pre: str
    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    scores: tuple[float, ...]
    merges: tuple[str, ...]
    bos: int | None
    eos: int | None
    unknown: int | None
    padding: int | None
    ends: frozenset[int]
    adds_bos: bool
    adds_space: bool

    def of_kind(self, kind: TokenKind) -> list[str]:
        return [token for token, its in zip(self.tokens, self.kinds, strict=True) if its == kind]

    def token(self, number: int | None) -> str | None:
        return None if number is None else self.tokens[number]


def read_vocabulary(values: Mapping[str, Any]) -> GgufVocabulary:
    """`values` are the keys behind `tokenizer.ggml.`. Raises `CheckpointError` with one line."""
    tokens = tuple(values.get("tokens", ()))
    if not tokens:
        raise CheckpointError("the file has no tokenizer; take the checkpoint in safetensors that it was made from")
    kinds = tuple(values.get("token_type") or [TokenKind.NORMAL] * len(tokens))
    scores = tuple(values.get("scores", ()))
    if len(kinds) != len(tokens) or (scores and len(scores) != len(tokens)):
        raise CheckpointError(
            f"its tokenizer is damaged: {len(tokens)} tokens, {len(kinds)} types, {len(scores)} scores; fetch it again"
        )
    if len(set(tokens)) != len(tokens):
        raise CheckpointError(
            f"its tokenizer is damaged: {len(tokens) - len(set(tokens))} of its {len(tokens)} tokens occur twice"
        )
    model, pre = str(values.get("model", "")), str(values.get("pre", ""))
    bos, eos, unknown, padding = (
        _id(values, name, len(tokens))
        for name in ("bos_token_id", "eos_token_id", "unknown_token_id", "padding_token_id")
    )
    return GgufVocabulary(
        model=model,
        pre=pre,
        tokens=tokens,
        kinds=kinds,
        scores=scores,
        merges=tuple(values.get("merges", ())),
        bos=bos,
        eos=eos,
        unknown=unknown,
        padding=padding,
        ends=_ends(values, tokens, kinds, eos),
        adds_bos=bool(values.get("add_bos_token", model in _PREFIXED_MODELS or pre in _BOS_BY_DEFAULT)),
        adds_space=bool(values.get("add_space_prefix", model in _PREFIXED_MODELS)),
    )


def _id(values: Mapping[str, Any], name: str, count: int) -> int | None:
    number = values.get(name)
    if number is None:
        return None
    if not 0 <= number < count:
        raise CheckpointError(f"its tokenizer is damaged: {name} is {number}, and it has {count} tokens")
    return int(number)


def _ends(
    values: Mapping[str, Any], tokens: tuple[str, ...], kinds: tuple[int, ...], eos: int | None
) -> frozenset[int]:
    numbered = (eos, *(_id(values, name, len(tokens)) for name in ("eot_token_id", "eom_token_id")))
    named = {
        number
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if token in ENDS_OF_TURN and kind in {TokenKind.CONTROL, TokenKind.USER_DEFINED}
    }
    return frozenset(named | {number for number in numbered if number is not None})
