"""Tokenizers of GGUF files, and what their own vocabulary says of them. No file and no package `gguf` is needed."""

import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.files.checkpoint import CheckpointFiles, check_folder
from models.files.errors import CheckpointError
from models.files.gguf.spelling import check_spelling
from models.files.gguf.tokenizer import build_tokenizer
from models.files.gguf.vocabulary import read_vocabulary
from tests.unit.models.gguf.tiny_gguf import byte_level

PIECES = [
    *("▁the", "▁then", "th", "the", "he", "▁t", "▁", "a", "b", "t", "h", "e", "n", "en", "in", "ing", "i", "g"),
    *("▁a", "▁an", "an", "ab", "aba", "ba"),
]
SPECIAL = ["<unk>", "<bos>", "<eos>"]


def sentencepiece(**changes):
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "<turn>", *PIECES]
    values = {
        "model": "llama",
        "tokens": tokens,
        "token_type": [2, 3, 3, *([6] * 256), 4, *([1] * len(PIECES))],
        "scores": [0.0] * 260 + [-float(rank) for rank in range(len(PIECES))],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_space_prefix": False,
    }
    return read_vocabulary(values | changes)


def merged(vocabulary, text):
    """The ids by SentencePiece's rule: merge the neighbours that make the best token, until none do."""
    score = dict(zip(vocabulary.tokens, vocabulary.scores, strict=True))
    number = {token: at for at, token in enumerate(vocabulary.tokens)}
    parts = list(text.replace(" ", "▁"))
    while True:
        best = max(
            (
                (score[left + right], -at)
                for at, (left, right) in enumerate(itertools.pairwise(parts))
                if left + right in PIECES
            ),
            default=None,
        )
        if best is None:
            break
        at = -best[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [at for part in parts for at in ([number[part]] if part in number else [3 + b for b in part.encode()])]


@given(st.text(alphabet="thenaibg é", max_size=30))
def test_the_best_score_is_merged_first(text):
    vocabulary = sentencepiece()
    tokenizer = build_tokenizer(vocabulary)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ids == merged(vocabulary, text)
    assert tokenizer.decode(ids) == text


def test_bos_the_space_in_front_and_tokens_of_turns():
    plain, prefixed = build_tokenizer(sentencepiece()), build_tokenizer(sentencepiece(add_space_prefix=True))
    assert plain.encode("the").tokens == ["<bos>", "the"]
    assert prefixed.encode("the").tokens == ["<bos>", "▁the"]
    assert prefixed.decode(prefixed.encode("the").ids) == "the"
    assert plain.encode("a<turn>b", add_special_tokens=False).tokens == ["a", "<turn>", "b"]
    unmarked = build_tokenizer(sentencepiece(add_bos_token=False))
    assert unmarked.encode("the").tokens == ["the"]


@pytest.mark.parametrize("adds_space", [False, True])
def test_a_whole_vocabulary_spells_itself(adds_space):
    vocabulary = sentencepiece(add_space_prefix=adds_space)
    check_spelling(build_tokenizer(vocabulary), vocabulary)


def of_file(**changes):
    prefix = "tokenizer.ggml."
    values = {key.removeprefix(prefix): value for key, value in byte_level().items() if key.startswith(prefix)}
    return read_vocabulary(values | changes)


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "smollm"])
def test_a_byte_level_vocabulary_spells_itself(pre):
    check_spelling(build_tokenizer(of_file(pre=pre)), of_file(pre=pre))


@pytest.mark.parametrize(
    ("pre", "text", "words"),
    [
        ("llama-bpe", "12345 I'm", ["123", "45", " I", "'m"]),
        ("qwen2", "123 x\n\n y", ["1", "2", "3", " x", "\n\n", " y"]),
        ("smollm", "a 12", ["a", " ", "1", "2"]),
        ("gpt-2", "12345 I'm", ["12345", " I", "'m"]),
    ],
)
def test_text_is_split_as_the_name_says(pre, text, words):
    split = build_tokenizer(of_file(pre=pre)).pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in split] == words


@pytest.mark.parametrize("spoilt", ["merges", "order"])
def test_a_tokenizer_that_cannot_spell_its_own_vocabulary_is_refused(spoilt):
    merges = list(of_file().merges)
    vocabulary = of_file(merges=[] if spoilt == "merges" else merges[: len(merges) // 4])
    with pytest.raises(CheckpointError, match=r"spells only \d+ of \d+ of its own tokens.*merges are damaged"):
        check_spelling(build_tokenizer(vocabulary), vocabulary)


def test_a_tokenizer_of_single_characters_is_refused():
    vocabulary = sentencepiece()
    tokenizer = build_tokenizer(vocabulary)
    tokenizer.model.dropout = 1.0  # no merge is ever made
    with pytest.raises(CheckpointError, match="scores are damaged"):
        check_spelling(tokenizer, vocabulary)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scores": []}, "has no scores"),
        ({"scores": [0.0]}, "1 scores"),
        ({"tokens": []}, "no tokenizer"),
        ({"bos_token_id": -1}, "bos_token_id is -1"),
        ({"model": "bert"}, "'bert'"),
    ],
)
def test_a_damaged_vocabulary_is_refused(changes, says):
    with pytest.raises(CheckpointError, match=says):
        build_tokenizer(sentencepiece(**changes))


def test_a_token_that_occurs_twice_is_refused():
    tokens = list(sentencepiece().tokens)
    with pytest.raises(CheckpointError, match=f"1 of its {len(tokens)} tokens occur twice"):
        sentencepiece(tokens=[*tokens[:-1], "a"])


def test_a_file_that_is_absent_or_no_gguf_is_told(tmp_path):
    path = tmp_path / "x.gguf"
    with pytest.raises(CheckpointError, match="there is no such file"):
        check_folder(str(path))
    path.write_bytes(b"<html>")
    check_folder(str(path))
    with pytest.raises(CheckpointError, match=r"x\.gguf is not a GGUF file"):
        CheckpointFiles.find(str(path))


def test_the_extra_is_named_where_it_is_not_installed(tmp_path, monkeypatch):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match="install Parley with its extra `gguf`"):
        CheckpointFiles.find(str(path))
