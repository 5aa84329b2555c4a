"""A tokenizer as llguidance takes it, without a second one in memory.

llguidance can read all of `tokenizer.json`. For Gemma's 262,144 tokens that takes it 1.2 s more, in which nothing else
runs in the process, and 135 MB. Here it gets the bytes of each token, by its own rules (its crate
`toktrie_hf_tokenizers`), and has texts tokenized by the tokenizer that is there. It reads those itself that it would
change first, because they write a space before a text, and those that it may not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from llguidance import LLTokenizer, TokenizerWrapper

from models.text.detokenizer import bytes_as_latin_1
from models.text.token_texts import highest_id

_MARK = b"\xff"
"""llguidance's, before the name of a token that is no text."""


def llguidance_tokenizer(source: Any, vocabulary: int, eos: list[int] | None) -> LLTokenizer:
    """`source` is a fast one of transformers; `vocabulary` the number of logits, beyond which ids are never drawn
    (sampler.py); without `eos`, the end is the tokenizer's own. Raises what llguidance raises.
    """
    backend = source.backend_tokenizer
    ends = eos or ([] if source.eos_token_id is None else [source.eos_token_id])
    if ends and (shared := shared_tokenizer(backend, vocabulary, ends)) is not None:
        return shared
    text = backend.to_str()  # by `from_tokenizer` of llguidance it would be copied before: two seconds, 100 MB
    if backend.padding is not None or backend.truncation is not None:
        text = json.dumps(json.loads(text) | {"padding": None, "truncation": None})
    return LLTokenizer(text, max(vocabulary, highest_id(backend) + 1), ends or None)


def shared_tokenizer(backend: Any, vocabulary: int, eos: Sequence[int]) -> LLTokenizer | None:
    """`backend` is one of the tokenizers package; `vocabulary` the number of logits, `eos` is not empty. None if
    llguidance has to read it.
    """
    if backend.padding or backend.truncation or not _leaves_texts_alone(backend):
        return None
    tokens = _token_bytes(backend)
    if tokens is None:
        return None
    tokens += [_MARK + b"<[%d]>" % number for number in range(len(tokens), vocabulary)]
    return LLTokenizer(TokenizerWrapper(_Shared(backend, tokens, eos[0])), eos_token=list(eos))


class _Shared:
    """What llguidance's `TokenizerWrapper` reads."""

    bos_token_id = None

    def __init__(self, backend: Any, tokens: list[bytes], eos: int) -> None:
        self._backend = backend
        self.tokens = tokens
        self.eos_token_id = eos

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids


def _leaves_texts_alone(backend: Any) -> bool:
    """Whether a text is tokenized alike at the beginning of another one and within it."""
    parts = chain(_parts(backend.normalizer), _parts(backend.pre_tokenizer))
    return not any(
        one["type"] == "Prepend" or (one["type"] == "Metaspace" and one.get("prepend_scheme") != "never")
        for one in parts
    )


def _token_bytes(backend: Any) -> list[bytes] | None:
    names = [backend.id_to_token(number) for number in range(backend.get_vocab_size(with_added_tokens=True))]
    spelled = _speller(backend)
    if spelled is None or None in names:  # ids with holes
        return None
    added = backend.get_added_tokens_decoder()
    special = {number for number, one in added.items() if one.special or _is_tag(one.content)}
    texts = {number: one.content.encode() for number, one in added.items()}
    try:
        return [
            _MARK + name.encode() if number in special else spelled(name, texts.get(number, b""))
            for number, name in enumerate(names)
        ]
    except ValueError:
        return None


def _is_tag(text: str) -> bool:
    return text.startswith("<") and text.endswith(">")


def _speller(backend: Any) -> Callable[[str, bytes], bytes] | None:
    """From the name of a token, and its bytes if the name has none, to its bytes."""
    decoders = list(_parts(backend.decoder))
    kinds = {one["type"] for one in decoders}
    if "ByteFallback" in kinds:
        replaced = [one for one in decoders if one["type"] == "Replace" and one["content"] == " "]
        spaces = [space for one in replaced if len(space := one["pattern"].get("String", "")) == 1]
        return _by_fallback(spaces[-1] if spaces else " ")
    return _by_level() if "ByteLevel" in kinds else None


def _by_level() -> Callable[[str, bytes], bytes]:
    """Each character of a name stands for a byte."""
    table = bytes_as_latin_1()

    def spelled(name: str, text: bytes) -> bytes:
        try:
            return name.translate(table).encode("latin-1")
        except UnicodeEncodeError:
            return text

    return spelled


def _by_fallback(space: str) -> Callable[[str, bytes], bytes]:
    """Tokens are texts, but for those that are named after a byte: `<0x0A>`."""

    def spelled(name: str, _: bytes) -> bytes:
        if not name.startswith("<0x"):
            return name.replace(space, " ").encode()
        return bytes([int(name[3:5], 16)])  # ValueError where it is none

    return spelled


def _parts(part: Any) -> Iterator[dict[str, Any]]:
    """The parts of a normalizer, pre-tokenizer or decoder, as they are written."""
    pending = [] if part is None else [json.loads(part.__getstate__())]
    while pending:
        one = pending.pop(0)
        within = next((one[key] for key in ("normalizers", "pretokenizers", "decoders") if key in one), None)
        if within is None:
            yield one
        else:
            pending = [*within, *pending]
