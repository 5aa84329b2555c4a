"""The ids of a checkpoint's text are those of its tokenizer.json, whatever class its config names."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, tokenization_utils_tokenizers

from models.files import tokenizer as tokenizer_module
from models.files.tokenizer import FileTokenizer, load_tokenizer
from models.text.detokenizer import TextStream, Vocabulary
from tests.unit.models import tiny

CLASSES = (
    "LlamaTokenizerFast", "LlamaTokenizer", "PreTrainedTokenizerFast", "Qwen2Tokenizer", "GemmaTokenizer",
    "GPT2Tokenizer", "CodeLlamaTokenizerFast", "NoSuchTokenizer",
)  # fmt: skip
KINDS = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "phi3", "no_such_kind")
TEXTS = ("hello big world, grüße 🙂", " a", "a  b", "\nHi\n", "12345", "u\u0308ber", "<s>a</s>b", "▁x")


def byte_level() -> Tokenizer:
    """Its own copy: tests add tokens to it."""
    made: Tokenizer = Tokenizer.from_str(tiny.tokenizer().backend_tokenizer.to_str())
    return made


def sentencepiece(style: str) -> Tokenizer:
    """Byte-pair encoding as Llama 2's files have it: a space that is put before the text, in one of two ways."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abeghilorwxH12345<>/s,"]
    merges = [("H", "i"), ("▁", "H"), ("▁H", "i"), ("▁", "a"), ("o", "r"), ("▁", "w"), ("▁w", "or"), ("▁", "▁")]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys([*pieces, *map("".join, merges)]))}
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if style == "prepend":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in pieces[:3]])
    return made


def folder_with(path: Path, backend: Any, name: str, kind: str, **more: Any) -> Path:
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(path)
    config = {"tokenizer_class": name, "add_bos_token": True, **more}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    (path / "config.json").write_text(json.dumps({"model_type": kind}))
    return path


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("style", ["byte-level", "prepend", "metaspace"])
def test_ids_are_those_of_the_file(tmp_path: Path, name: str, style: str) -> None:
    for number, kind in enumerate(KINDS):
        backend = byte_level() if style == "byte-level" else sentencepiece(style)
        more = {} if number % 2 else {"legacy": number % 4 == 0}
        folder = folder_with(tmp_path / kind, backend, name, kind, **more)
        right = Tokenizer.from_file(str(folder / "tokenizer.json"))
        loaded = load_tokenizer(folder)
        for text in TEXTS:
            ids = right.encode(text, add_special_tokens=False).ids
            assert loaded(text, add_special_tokens=False)["input_ids"] == ids, (kind, text)
        stream = TextStream(Vocabulary(loaded))
        ids = right.encode("Hi wor grüße 🙂", add_special_tokens=False).ids
        assert "".join(map(stream.step, ids)).strip() == "Hi wor grüße 🙂", kind


def test_token_above_a_hole_in_the_ids_has_its_text() -> None:
    backend = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "<think>": 320}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    stream = TextStream(Vocabulary(PreTrainedTokenizerFast(tokenizer_object=backend)))
    assert "".join(map(stream.step, (0, 320, 1))) == "a<think>b"


def test_a_file_is_read_once_and_never_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_with(tmp_path, byte_level(), "GemmaTokenizer", "gemma3_text")
    copied, read, deepcopy = list[Any](), list[str](), copy.deepcopy

    def from_file(path: str) -> Tokenizer:
        read.append(path)
        return Tokenizer.from_file(path)

    monkeypatch.setattr(tokenization_utils_tokenizers, "TokenizerFast", SimpleNamespace(from_file=from_file))
    monkeypatch.setattr(copy, "deepcopy", lambda one, *memo: copied.append(one) or deepcopy(one, *memo))
    monkeypatch.setattr(json, "load", lambda file: read.append(file.name) or json.loads(file.read()))
    loaded = load_tokenizer(folder)
    assert [one for one in read if one.endswith("tokenizer.json")] == [str(folder / "tokenizer.json")]
    assert not [one for one in copied if isinstance(one, Tokenizer)]
    assert loaded("hello big world")["input_ids"] == byte_level().encode("hello big world").ids


@pytest.mark.parametrize("first_read", [1 << 20, 1])
@pytest.mark.parametrize("style", ["byte-level", "prepend"])
def test_added_tokens_are_those_that_transformers_reads_itself(
    tmp_path: Path, style: str, first_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_module, "_FIRST_READ", first_read)
    backend = byte_level() if style == "byte-level" else sentencepiece(style)
    backend.add_tokens([AddedToken("<größe😀>", lstrip=True, normalized=False), AddedToken("wide", single_word=True)])
    backend.add_special_tokens([AddedToken("<end>", rstrip=True)])
    folder = folder_with(tmp_path, backend, "LlamaTokenizer", "llama", eos_token="<end>")
    ours, theirs = load_tokenizer(folder), FileTokenizer.from_pretrained(folder)
    assert {str(one): repr(one) for one in ours.added_tokens_decoder.values()} == {
        str(one): repr(one) for one in theirs.added_tokens_decoder.values()
    }
    assert ours.backend_tokenizer.to_str() == theirs.backend_tokenizer.to_str()
    assert (ours.eos_token_id, ours.all_special_ids) == (theirs.eos_token_id, theirs.all_special_ids)
