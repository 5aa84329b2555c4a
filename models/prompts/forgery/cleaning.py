"""Takes the names of tokens of control out of the texts of one prompt.

A template joins texts, with others and with its own, and some take words out of them or change their case. So a name
may arise of which no text has the whole. Where that is possible the prompt is rendered in two further ways, and the
first of the three that has no other such names than the last one is the prompt.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable

from models.prompts.forgery.special_tokens import SpecialTokens
from models.text.reasoning import ReasoningTags

_CHANGES = re.compile(r"replace|split|strip\s*\(\s*['\"]|lower|upper|title|capitalize|regex")
"""In a template: what may join the halves of a name within one text."""


class Cut(enum.Enum):
    """What is done to a text that may have a part of a name: nothing; it is kept apart from what stands beside it; no
    letter with which a name begins is followed by another.
    """

    NONE = enum.auto()
    APART = enum.auto()
    SPELLED = enum.auto()


class Cleaning:
    """`has_parts`: some text may have a part of a name that becomes whole in the prompt.

    foreign: Names that no text but the service's may have; `own`: those that the model's own texts may not have;
    `tags`: those of its reasoning.
    changes: The template may change what stands within a text.
    """

    def __init__(
        self,
        foreign: SpecialTokens,
        own: SpecialTokens,
        tags: ReasoningTags,
        *,
        changes: bool,
        cut: Cut = Cut.NONE,
    ) -> None:
        self.has_parts = False
        self._foreign = foreign
        self._own = own
        self._tags = re.compile(f"({re.escape(tags.begin)}|{re.escape(tags.end)})")
        self._changes = changes
        self._cut = cut

    def foreign(self, text: str) -> str:
        return self._parted(self._foreign.removed_from(text), self._foreign.spelled)

    def own(self, text: str) -> str:
        """With its reasoning, which the template takes out by the tags."""
        return self._parted(self._own.removed_from(text), self._spelled_but_reasoning)

    def _parted(self, text: str, spelled: Callable[[str], str]) -> str:
        apart = self._foreign.kept_apart(text)
        self.has_parts = self.has_parts or apart != text or (self._changes and self._foreign.may_begin_in(text))
        if self._cut is Cut.NONE:
            return text
        return apart if self._cut is Cut.APART else self._foreign.kept_apart(spelled(text))

    def _spelled_but_reasoning(self, text: str) -> str:
        pieces = self._tags.split(text)
        return "".join(one if self._tags.fullmatch(one) else self._foreign.spelled(one) for one in pieces)


def may_change(template: str) -> bool:
    """Whether a template may change what stands within a text."""
    return _CHANGES.search(template) is not None


def cleaned(
    render: Callable[[Cleaning], str],
    foreign: SpecialTokens,
    own: SpecialTokens,
    tags: ReasoningTags,
    *,
    changes: bool,
) -> str:
    """The text that `render` gives, in which no name of `foreign` has come from a text."""
    cleaning = Cleaning(foreign, own, tags, changes=changes)
    plain = render(cleaning)
    if not cleaning.has_parts:
        return plain
    spelled = render(Cleaning(foreign, own, tags, changes=changes, cut=Cut.SPELLED))
    right = foreign.found_in(spelled)
    if foreign.found_in(plain) == right:
        return plain
    apart = render(Cleaning(foreign, own, tags, changes=changes, cut=Cut.APART))
    return apart if foreign.found_in(apart) == right else spelled
