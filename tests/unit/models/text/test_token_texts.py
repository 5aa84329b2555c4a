"""The texts of single tokens beside what real tokenizers make of all of them together."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers import models as kinds
from transformers import PreTrainedTokenizerFast

from models.text.token_texts import TokenTexts, bytes_of, highest_id, name_of
from tests.unit.models import tiny

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
ALPHABET = "abeghilorw dü🙂ß漢\n"
SPECIAL = [AddedToken(name, special=True) for name in ("<s>", "</s>")]


@functools.cache
def byte_level() -> Any:
    return tiny.tokenizer()


def _sentencepiece(pieces: list[str]) -> Tokenizer:
    vocabulary = ["<unk>", "<s>", "</s>", *BYTES, *pieces]
    model = kinds.Unigram([(piece, -9.0 if piece in BYTES else -1.0) for piece in vocabulary], 0, True)
    backend = Tokenizer(model)
    backend.add_special_tokens(SPECIAL)
    return backend


@functools.cache
def llama_2() -> Any:
    """A space before the text, which the decoder strips."""
    backend = _sentencepiece(["▁", *"abeghilorw", "▁hello", "▁big", "world", "hello"])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@functools.cache
def gemma() -> Any:
    backend = _sentencepiece(["▁", *"abeghilorw", "▁hello", "big"])
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


TOKENIZERS = [byte_level, llama_2, gemma]


@pytest.mark.parametrize("make", TOKENIZERS)
def test_the_bytes_of_all_tokens_are_those_of_the_text(make: Any) -> None:
    tokenizer, draw = make(), random.Random(4)
    texts = TokenTexts(tokenizer)
    for _ in range(300):
        text = "".join(draw.choices(ALPHABET, k=draw.randint(1, 20)))
        ids = tokenizer(text, add_special_tokens=False).input_ids
        names = [texts(token, begins=not at) for at, token in enumerate(ids)]
        whole = tokenizer.backend_tokenizer.decode(ids)
        assert b"".join(map(bytes_of, names)) == whole.encode(), (text, names)


@pytest.mark.parametrize("make", TOKENIZERS)
def test_no_part_of_a_character_has_the_name_of_another(make: Any) -> None:
    tokenizer = make()
    texts = TokenTexts(tokenizer)
    ids = {token for text in "🙂🙃漢字ß" for token in tokenizer(text, add_special_tokens=False).input_ids}
    assert len({texts(token) for token in ids}) == len(ids)
    assert "\ufffd" not in "".join(map(texts, ids))


def test_the_space_of_a_token_is_part_of_its_text() -> None:
    texts, tokenizer = TokenTexts(llama_2()), llama_2()
    hello = tokenizer.convert_tokens_to_ids("▁hello")
    assert (texts(hello), texts(hello, begins=True)) == (" hello", "hello")


def test_special_tokens_have_their_names() -> None:
    texts, tokenizer = TokenTexts(llama_2()), llama_2()
    assert {texts(token) for token in texts.special} == {"<s>", "</s>", "<unk>"}
    assert tokenizer.bos_token_id in texts.special


def test_a_token_that_looks_like_a_byte_is_text_where_no_bytes_are() -> None:
    backend = Tokenizer(kinds.WordLevel({"<0xE2>": 0, "a": 1, "<unk>": 2}, unk_token="<unk>"))
    texts = TokenTexts(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>"))
    assert texts(0, begins=True) == "<0xE2>"


@pytest.mark.parametrize("piece", [b"\xe2\x9f", b"\x82", "é".encode(), b"", b" a"])
def test_a_name_gives_its_bytes_back(piece: bytes) -> None:
    assert bytes_of(name_of(piece)) == piece


def test_names_have_openais_form() -> None:
    assert name_of(b"\xe2\x9f") == r"bytes:\xe2\x9f"
    assert bytes_of("bytes:") == b"bytes:"


@pytest.mark.parametrize(
    ("ids", "added", "highest"),
    [((), (), -1), ((0, 1), (), 1), ((0, 1), ("a", "new"), 2), ((0, 7), (), 7), ((0, 7), ("new",), 7), ((3, 3), (), 3)],
)
def test_highest_id_is_that_of_all_tokens(ids: tuple[int, ...], added: tuple[str, ...], highest: int) -> None:
    backend = Tokenizer(kinds.WordLevel(dict(zip("ab", ids, strict=False))))
    backend.add_tokens([AddedToken(one) for one in added])
    assert max(backend.get_vocab(with_added_tokens=True).values(), default=-1) == highest
    assert highest_id(backend) == highest
