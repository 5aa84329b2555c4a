import copy
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from models.text.detokenizer import BytesDecoder, TextStream, Vocabulary, WindowDecoder
from tests.examples import examples
from tests.unit.models import tiny

VOCABULARY = Vocabulary(tiny.tokenizer())
BACKEND = tiny.tokenizer().backend_tokenizer
TEXTS = ["grüße 🙂 日本語", "where is my order 4711?", "👨‍👩‍👧 family", "a\u0301 b"]


def pieces(stream, tokens):
    return [stream.step(token) for token in tokens]


def sentencepiece():
    """Byte fallback and word marks, as Llama 2 and Gemma have them."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    for piece in ["▁", "▁where", "▁is", "a", "b", "▁my", "▁order", "ü"]:
        vocab[piece] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<0x00>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


@pytest.mark.parametrize("given_text", TEXTS)
@pytest.mark.parametrize("decoder", [lambda: BytesDecoder(VOCABULARY.pieces), lambda: WindowDecoder(BACKEND)])
def test_the_pieces_joined_are_the_text_and_none_is_half_a_character(given_text, decoder):
    tokens = BACKEND.encode(given_text).ids
    found = pieces(decoder(), tokens)
    assert "".join(found) == given_text
    assert not any("\ufffd" in piece for piece in found)


def test_byte_level_tokenizers_take_the_quick_way_and_others_the_general_one():
    assert isinstance(VOCABULARY.decoder(), BytesDecoder)
    other = Vocabulary(PreTrainedTokenizerFast(tokenizer_object=sentencepiece()))
    assert isinstance(other.decoder(), WindowDecoder)


@pytest.mark.parametrize("more", [[], [decoders.Fuse()], [decoders.ByteFallback(), decoders.Fuse()]])
def test_a_byte_level_decoder_in_a_sequence_loses_no_text_before_half_a_character(more):
    backend = Tokenizer(models.BPE(vocab={"Ġ": 0, "k": 1, "Ã": 2, "¼": 3, "ĠkÃ": 4}, merges=[]))
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), *more])
    vocabulary = Vocabulary(PreTrainedTokenizerFast(tokenizer_object=backend))
    assert pieces(vocabulary.decoder(), [4, 3, 4]) == [" k", "ü", " k"]


def test_a_vocabulary_with_another_character_than_bytes_have_takes_the_general_way():
    for piece in (" a", "日", "\xad"):
        backend = Tokenizer(models.BPE(vocab={"a": 0, piece: 1}, merges=[]))
        backend.decoder = decoders.ByteLevel()
        assert Vocabulary(PreTrainedTokenizerFast(tokenizer_object=backend)).pieces is None


def test_pieces_are_made_once_and_again_for_more_tokens():
    tokenizer = copy.deepcopy(tiny.tokenizer())  # other tests share it
    first = Vocabulary(tokenizer).pieces
    assert Vocabulary(tokenizer).pieces is first
    tokenizer.add_tokens(["grüße"])
    assert Vocabulary(tokenizer).pieces == [*first, "grüße".encode()]


@given(st.lists(st.integers(0, 319), max_size=60))
def test_any_tokens_give_what_the_tokenizer_gives_for_all_of_them(tokens):
    found = "".join(pieces(VOCABULARY.decoder(), tokens))
    whole = BACKEND.decode(tokens)
    assert whole.startswith(found)
    assert set(whole[len(found) :]) <= {"\ufffd"}


def test_word_marks_and_bytes_of_a_sentencepiece_tokenizer():
    tokenizer = sentencepiece()
    ids = [tokenizer.token_to_id(piece) for piece in ["▁where", "▁is"]] + [*"🙂".encode()]
    found = pieces(WindowDecoder(tokenizer), [*ids, tokenizer.token_to_id("▁my")])
    assert found == ["where", " is", "", "", "", "🙂", " my"]


def test_garbage_bytes_of_a_sentencepiece_tokenizer_are_given_up_after_a_while():
    found = pieces(WindowDecoder(sentencepiece()), [0xFF] * 300)
    assert sum(map(len, found)) > 200


@examples(2)
@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_text_ends_before_the_first_stop_string_and_holds_back_no_more_than_it_must(generated, stops):
    stream = TextStream(VOCABULARY, stops)
    text, tokens = "", [BACKEND.token_to_id(character) for character in generated]
    for count, token in enumerate(tokens, 1):
        text += stream.step(token)
        so_far = generated[:count]
        ends = [so_far.find(stop) for stop in stops if stop in so_far]
        if ends:
            assert stream.stopped
            assert text == so_far[: min(ends)]
            return
        held = max((n for s in stops for n in range(1, len(s)) if so_far.endswith(s[:n])), default=0)
        assert not stream.stopped
        assert (text, stream.held) == (so_far[: count - held], so_far[count - held :])


def test_the_text_after_a_token_depends_on_the_tokens_before_it_alone():
    tokens = [random.Random(3).randrange(320) for _ in range(200)]
    whole = pieces(TextStream(VOCABULARY, ["ab", "x"]), tokens)
    for cut in range(0, 200, 13):
        resumed = TextStream(VOCABULARY, ["ab", "x"])
        assert pieces(resumed, tokens[:cut]) + pieces(resumed, tokens[cut:]) == whole
