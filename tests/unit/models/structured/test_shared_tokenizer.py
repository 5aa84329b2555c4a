"""A tokenizer that is shared has the tokens that llguidance reads from its file."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers

from models.structured.shared_tokenizer import shared_tokenizer
from tests.unit.models import tiny
from tests.unit.models.structured.walks import tokenizer as demo
from tests.unit.models.text.test_token_texts import gemma, llama_2

ADDED = [
    AddedToken("<own>", special=True),
    AddedToken("<tag>", special=False),
    AddedToken("two words", special=False),
    AddedToken("▁größe 😀", special=False),
]
TEXTS = [
    *(" hello", "big world", "a\n\tb", "größe 😀", "two words", "x<tag>y<own>", "<unk>", "", "漢字"),
    json.dumps({"name": "größe 😀", "list": [1.5, None, True], "tag": "<tag>"}, ensure_ascii=False),
]
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["hello big", "größe"]}}, "required": ["name"]}


def with_added(make: Callable[[], Any]) -> Tokenizer:
    backend = copy.deepcopy(make().backend_tokenizer)
    backend.add_tokens(ADDED)
    return backend


def llama_2_without_space() -> Tokenizer:
    backend = with_added(llama_2)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="never"), pre_tokenizers.Digits()]
    )
    return backend


SHARED = {
    "demo": lambda: demo().backend_tokenizer,
    "byte level": lambda: with_added(tiny.tokenizer),
    "byte fallback": lambda: with_added(gemma),
    "metaspace": llama_2_without_space,
}


def both(backend: Tokenizer, more: int = 7) -> tuple[LLTokenizer, LLTokenizer]:
    count = backend.get_vocab_size(with_added_tokens=True) + more
    shared = shared_tokenizer(backend, count, [2, 5])
    assert shared is not None
    return shared, LLTokenizer(backend.to_str(), count, [2, 5])


@pytest.mark.parametrize("make", SHARED.values(), ids=SHARED)
def test_every_token_and_text_is_as_in_the_file(make: Callable[[], Tokenizer]) -> None:
    shared, theirs = both(make())
    assert (shared.vocab_size, shared.eos_tokens) == (theirs.vocab_size, theirs.eos_tokens)
    assert shared.is_canonical == theirs.is_canonical
    for token in range(theirs.vocab_size):
        assert shared.decode_bytes([token]) == theirs.decode_bytes([token])
        assert shared.dbg_tokens([token]) == theirs.dbg_tokens([token])
        assert shared.is_special_token(token) == theirs.is_special_token(token)
    for text in TEXTS:
        assert shared.tokenize_str(text) == theirs.tokenize_str(text)
        assert shared.tokenize_bytes(text.encode()[:-1]) == theirs.tokenize_bytes(text.encode()[:-1])


@pytest.mark.parametrize("make", SHARED.values(), ids=SHARED)
def test_a_constraint_allows_the_same_tokens(make: Callable[[], Tokenizer]) -> None:
    found = [LLMatcher(one, LLMatcher.grammar_from_json_schema(SCHEMA), log_level=0) for one in both(make())]
    draw, drawn = random.Random(3), 0
    while not found[0].is_stopped():
        masks = [one.compute_bitmask() for one in found]
        assert masks[0] == masks[1]
        bits = int.from_bytes(masks[0], "little")
        token = draw.choice([number for number in range(bits.bit_length()) if bits >> number & 1])
        assert all(one.consume_token(token) for one in found)
        drawn += 1
    assert drawn > 3


def changed(**parts: Any) -> Tokenizer:
    backend = with_added(gemma)
    for name, part in parts.items():
        setattr(backend, name, part)
    return backend


def padded() -> Tokenizer:
    backend = with_added(gemma)
    backend.enable_padding()
    return backend


READ = {
    "space before the text": lambda: llama_2().backend_tokenizer,
    "space by a normalizer": lambda: changed(
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    ),
    "no decoder of bytes": lambda: changed(decoder=decoders.Fuse()),
    "padding": padded,
}


@pytest.mark.parametrize("make", READ.values(), ids=READ)
def test_llguidance_reads_what_it_would_change_or_refuse(make: Callable[[], Tokenizer]) -> None:
    assert shared_tokenizer(make(), 1000, [2]) is None


def test_ids_with_holes_are_read_by_llguidance() -> None:
    written = json.loads(tiny.tokenizer().backend_tokenizer.to_str())
    written["model"]["vocab"][max(written["model"]["vocab"], key=written["model"]["vocab"].__getitem__)] += 3
    assert shared_tokenizer(Tokenizer.from_str(json.dumps(written)), 1000, [2]) is None
