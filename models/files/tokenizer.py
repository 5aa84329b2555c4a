"""Load a checkpoint's tokenizer: `tokenizer.json` as it is.

The classes that transformers chooses by `tokenizer_class` or by the kind of model replace parts of the file, its
pre-tokenizer for example, by what that family once had. Of a byte-level tokenizer under the name `LlamaTokenizerFast`
every space is lost, in silence (transformers #45488). The file says what the model was trained with.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from transformers.tokenization_utils_tokenizers import TokenizersBackend

_ELSEWHERE = ("special_tokens_map.json", "added_tokens.json")
# Without msgspec, which a machine that was lent for its GPU may lack.
_ADDED = re.compile(rb'"added_tokens"\s*:\s*(?=\[)')
_FIRST_READ = 1 << 20
"""Bytes of the file that are read as JSON first; the list of most tokenizers ends within."""


class FileTokenizer(TokenizersBackend):
    """The generic class, which reads its file once. Left alone, it copies what it has read, by writing it as JSON and
    reading that.
    """

    @classmethod
    def convert_to_native_format(cls, trust_remote_code: bool = False, **options: Any) -> dict[str, Any]:  # noqa: ARG003
        return options  # `tokenizer_file` is among them, which the constructor reads


def load_tokenizer(folder: Path, *, remote_code: bool = False) -> Any:
    """A tokenizer of transformers with the ids of `Tokenizer.from_file`; raises what transformers raises.

    The generic class also spares the import of all that transformers has for models, which takes two seconds. A
    checkpoint without `tokenizer.json`, or with code of its own, is `AutoTokenizer`'s.
    """
    if not remote_code and (folder / "tokenizer.json").is_file():
        return FileTokenizer.from_pretrained(folder, **_added_tokens(folder))
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=remote_code)


def _added_tokens(folder: Path) -> dict[str, Any]:
    """What transformers would find by parsing all of `tokenizer.json` once more: a second for 262,144 tokens. Nothing
    where it reads them from another file.
    """
    config = folder / "tokenizer_config.json"
    if any((folder / name).is_file() for name in _ELSEWHERE):
        return {}
    if config.is_file() and b'"added_tokens_decoder"' in config.read_bytes():
        return {}
    written = (folder / "tokenizer.json").read_bytes()
    if (named := _ADDED.search(written)) is None:
        return {}
    found = _first_value(written[named.end() :])
    return {"added_tokens_decoder": {one.pop("id"): AddedToken(**one) for one in found}}


def _first_value(written: bytes) -> Any:
    """That of JSON with which a text begins, of which no more is decoded than it needs, more or less."""
    size = _FIRST_READ
    while True:
        with suppress(json.JSONDecodeError):
            return json.JSONDecoder().raw_decode(written[:size].decode(errors="ignore"))[0]
        if size >= len(written):
            raise ValueError("its list of added tokens has no end")
        size *= 4
