"""Names of the tokens that control a model, which texts of users, tools and documents must not become.

Special tokens always do. Of the others those do that the chat template writes, or whose names are of reasoning, tools
or documents: a tokenizer may also have added tokens for plain text (`<td>`, runs of spaces), which texts keep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from models.tools.format import ToolFormat

_TAG = re.compile(r"</?[|｜]?/?[A-Za-z][\w▁:=.|｜-]*(?:\s[^<>]{0,200})?/?>|\[/?[A-Z][A-Z_]+\]|◁/?\w+▷")
_CONTROL = re.compile(r"think|tool|reason|func|document|(?:^|[^a-z])(?:args|arg_|param)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ControlTokens:
    """`special` are the special tokens with their ids; `added` the names of the other added ones. `tags` are the
    special ones and the others between angle brackets: in llguidance's grammars no text spells them.
    """

    special: Mapping[str, int]
    added: frozenset[str]
    tags: Mapping[str, int]

    def written(self, tokenizer: Any, texts: Sequence[str], form: ToolFormat) -> frozenset[str]:
        """All that may not stand in foreign text; `texts` are what the template has written."""
        source = "\n".join([*sources(tokenizer), *form.literals])
        tokens = {name for name in self.added if name in source or (_TAG.fullmatch(name) and _CONTROL.search(name))}
        # Tags that are no tokens mark a tool's result just as well, whatever they are called.
        tags = {_fixed(tag) for text in texts for tag in _TAG.findall(text)}
        return frozenset(self.special) | {name for name in tokens if name.strip()} | tags


def _fixed(tag: str) -> str:
    """A tag up to the first name in it, which is the conversation's."""
    begin, equals, _ = tag.partition("=")
    return begin + equals


def control_tokens(tokenizer: Any) -> ControlTokens:
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    special = {token.content: number for number, token in added.items() if token.special}
    others = frozenset(token.content for token in added.values() if not token.special)
    bracketed = {
        token.content: number
        for number, token in added.items()
        if token.content.startswith("<") and token.content.endswith(">")
    }
    return ControlTokens(MappingProxyType(special), others, MappingProxyType(special | bracketed))


def sources(tokenizer: Any) -> list[str]:
    """The texts of its chat templates."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        return [str(one) for one in template.values()]
    return [template] if template else []
