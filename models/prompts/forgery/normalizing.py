"""What a tokenizer makes of each character before it finds its added tokens.

An added token with `normalized` is found in the text that the tokenizer's normalizer leaves. If that changes widths or
cases, drops accents or removes characters, a text becomes such a token without having its name, as `<TOOL>` for
`<tool>`.
https://huggingface.co/docs/tokenizers/api/added-tokens
"""

from __future__ import annotations

from typing import Any

_NEIGHBOUR = "q"
"""No accent makes one character of it."""
_JOINERS = ("\u2060", "\u200b", "·", "-")


class Normalizing:
    """`backend` is a `tokenizers.Tokenizer` with a normalizer."""

    def __init__(self, backend: Any) -> None:
        self._normalize = backend.normalizer.normalize_str
        self._before = len(self._normalize(_NEIGHBOUR * 2)) - 1
        self._table = _Table(self)
        self.joiner = next((one for one in _JOINERS if self.of(one) == one), _JOINERS[-1])

    def of(self, text: str) -> str:
        return text.translate(self._table)

    def of_character(self, character: str) -> str:
        """It may be none or several. Next to others, so that nothing is done that is done to the ends of a text."""
        between: str = self._normalize(f"{_NEIGHBOUR}{character}{_NEIGHBOUR}")
        return between[self._before : -1]


class _Table(dict[int, str]):
    """For `str.translate`: each character is normalized once."""

    def __init__(self, normalizing: Normalizing) -> None:
        super().__init__()
        self._normalizing = normalizing

    def __missing__(self, code: int) -> str:
        self[code] = found = self._normalizing.of_character(chr(code))
        return found


def normalizing(backend: Any) -> Normalizing | None:
    """None if no added token of the tokenizer is found in normalized text."""
    added = backend.get_added_tokens_decoder().values()
    has_normalized = backend.normalizer is not None and any(token.normalized for token in added)
    return Normalizing(backend) if has_normalized else None
