"""Load a checkpoint's tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# The generic class, under its present name and that of transformers 4.
_GENERIC = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})
# Kinds of models for which transformers has no tokenizer class of their own that it would prefer.
_WITHOUT_OWN = frozenset({"llama", "mistral"})


def load_tokenizer(folder: Path, *, remote_code: bool = False) -> Any:
    """A tokenizer of transformers; raises what that raises.

    `AutoTokenizer` imports all that transformers has for models, which takes two seconds. A generic tokenizer is
    therefore loaded by its class.
    """
    if not remote_code and _is_generic(folder):
        from transformers.tokenization_utils_tokenizers import TokenizersBackend  # noqa: PLC0415

        return TokenizersBackend.from_pretrained(folder)
    from transformers import AutoTokenizer  # noqa: PLC0415

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=remote_code)


def _is_generic(folder: Path) -> bool:
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text())
        kind = json.loads((folder / "config.json").read_text())["model_type"]
        return "auto_map" not in config and config["tokenizer_class"] in _GENERIC and kind in _WITHOUT_OWN
    except (OSError, ValueError, KeyError, TypeError):
        return False
