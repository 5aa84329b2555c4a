"""SegmentTokenizer: its ids are those of the whole text, whatever the tokenizer."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

from models.demo import CHECKPOINT
from models.prompts.segment_tokenizer import LONGEST, SegmentTokenizer

PIECES = (
    "hello ",
    " world",
    "\n",
    "\n\n",
    "12345",
    "ß",
    "日本語",
    "🙂",
    "  ",
    "▁",
    "é",
    "e\u0301",
    "<|",
    "|>",
    "<s",
    "x" * 40,
)
NAMES = ("<s>", "</s>", "<|user|>", "<|user|>x")


def bpe(pre: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="?"))
    made.pre_tokenizer = pre
    if normalizer is not None:
        made.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["?"], show_progress=False)
    made.train_from_iterator(["hello world 12345 日本語 🙂 é ß <| |> xxxx"] * 3, trainer)
    made.add_special_tokens([AddedToken(name, normalized=False) for name in NAMES])
    return made


def byte_level() -> Tokenizer:
    return bpe(pre_tokenizers.ByteLevel(add_prefix_space=False))


def prefix_space() -> Tokenizer:
    return bpe(pre_tokenizers.ByteLevel(add_prefix_space=True))


def composed() -> Tokenizer:
    return bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC())


def metaspace_first() -> Tokenizer:
    return bpe(pre_tokenizers.Metaspace(prepend_scheme="first"))


def metaspace_always() -> Tokenizer:
    return bpe(pre_tokenizers.Metaspace(prepend_scheme="always"))


def taking_spaces() -> Tokenizer:
    made = byte_level()
    made.add_special_tokens([AddedToken("<pad>", lstrip=True, rstrip=True)])
    return made


def without_special_tokens() -> Tokenizer:
    return Tokenizer(models.BPE())


def demo() -> Tokenizer:
    return Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))


KINDS = (
    byte_level, prefix_space, composed, metaspace_first, metaspace_always, taking_spaces, without_special_tokens, demo,
)  # fmt: skip


@pytest.mark.parametrize("make", KINDS)
def test_ids_are_those_of_the_whole_text(make: Callable[[], Tokenizer]) -> None:
    backend = make()
    segments, chance = SegmentTokenizer(backend), random.Random(1)
    names = [token.content for token in backend.get_added_tokens_decoder().values()] or list(NAMES)
    for _ in range(500):
        text = "".join(chance.choice(chance.choice((PIECES, names))) for _ in range(chance.randrange(12)))
        assert segments.ids(text) == backend.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize("make", [byte_level, composed, demo])
def test_usual_tokenizers_are_segmented(make: Callable[[], Tokenizer]) -> None:
    assert SegmentTokenizer(make()).is_segmented


@pytest.mark.parametrize("make", [metaspace_first, taking_spaces, without_special_tokens])
def test_tokenizers_whose_segments_depend_on_their_place_are_not(make: Callable[[], Tokenizer]) -> None:
    assert not SegmentTokenizer(make()).is_segmented


def test_a_segment_is_tokenized_once() -> None:
    segments = SegmentTokenizer(byte_level())
    segments.ids("<s>hello</s>world")
    before = segments._cached.cache_info()
    segments.ids("<s>hello</s>world<s>hello")
    after = segments._cached.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 3)


def test_a_long_segment_is_not_kept() -> None:
    segments = SegmentTokenizer(byte_level())
    before = segments._cached.cache_info().currsize
    segments.ids("<s>" + "x" * (LONGEST + 1))
    assert segments._cached.cache_info().currsize == before


def test_a_long_text_is_tokenized_without_the_interpreters_lock() -> None:
    """Another thread, such as that of the event loop, goes on meanwhile."""
    backend = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    chance = random.Random(1)
    text = " ".join(chance.choice(["order", "hello", "äö", "😀", "4711", "where"]) for _ in range(100_000))
    ticks, done = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            time.sleep(0.001)
            ticks += 1

    other = threading.Thread(target=tick)
    other.start()
    segments = SegmentTokenizer(backend)
    before = ticks
    found = segments.ids(text)
    during = ticks - before
    done.set()
    other.join()
    assert found == backend.encode(text, add_special_tokens=False).ids
    assert during > 5
