"""What the topics must hold of the decisions about answers: plans, takeovers, repeated answers and recalled turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.policy.file import DEFAULT_MODEL
from app.reader import Answer, ReaderRule
from app.wire.event import Plan, RecalledTurn
from app.wire.turn import Turn
from models.served.paced import BytePrompts, word

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Author:
    """The model that wrote the tokens from index `begin` on; its own count of them began at `base`."""

    begin: int
    base: int
    version: str


def version_of(version: str, candidate: int) -> str:
    """The model as which the paced engine says the words of this candidate of `best_of`."""
    return f"{version}#{candidate}" if candidate else version


def authors_of(takeovers: Sequence[Plan], answer: Answer, turn: Turn, chosen: int) -> list[Author]:
    """The models that had to write the answer of the paced engine, the last one first. `takeovers` are the plans by
    which a model continued it, and `chosen` is the candidate that readers get.
    """
    authors = []
    for plan in reversed(takeovers):
        begin = plan.from_index or 0
        before = "".join(event.text or "" for event in answer.segments if event.next_index <= begin)
        words = version_of(f"{plan.model}@1", chosen)
        authors.append(Author(begin, begin - len(BytePrompts().ids_of(before)), words))
    version = answer.segments[0].model_version if takeovers and answer.segments else turn.model_version
    return [*authors, Author(0, 0, version_of(version or "", chosen))]


def is_as_decided(plan: Plan, answer: Answer, turn: Turn, *, paced: bool) -> bool:
    """Whether the turn names what the plan decided, and the model of the plan wrote the last part of the answer."""
    if (turn.route, turn.experiment, turn.arm) != (plan.route, plan.experiment, plan.arm):
        return False
    if turn.cached != plan.cached:
        return False
    begin = 0 if plan.from_index is None else plan.from_index
    last = (*(event for event in answer.segments if (event.index or 0) >= begin), answer.end)
    versions = {event.model_version for event in last if event is not None}
    return not paced or versions <= {"paced@1" if plan.model in {None, DEFAULT_MODEL} else f"{plan.model}@1"}


def wrong_repeats(plans: Mapping[Key, Plan], rule: ReaderRule, asked: Mapping[Key, dict]) -> Iterator[Key]:
    """Answers from the response cache that are not the whole answer to an equal request of the same user, or that is
    what a request before them has rolled back.
    """
    order = {key: place for place, key in enumerate(asked)}
    for key, plan in plans.items():
        if plan.cached is None or key not in rule.answers:
            continue
        answer, source = rule.answers[key], rule.answers.get((key[0], plan.cached))
        if source is None or _question(asked.get(key)) != _question(asked.get((key[0], plan.cached))):
            yield key
            continue
        ended = plans.get((key[0], plan.cached))
        if ended is not None and ended.rolled_back and order[key] >= order.get((key[0], ended.superseded or ""), 0):
            yield key
        # The owner that resumes one of the two may choose another model for it if nothing was decided before.
        versions = {event.model_version for event in (*answer.segments, *source.segments)}
        # What is no part of the source was generated, and is not free. The guard judges each reader's text anew.
        is_blocked = ended is not None and ended.filtered is not None
        if len(versions) == 1 and not is_blocked and not source.text.startswith(answer.text):
            yield key


def wrong_memories(recalled: Mapping[Key, Iterable[RecalledTurn]], turns: Mapping[Key, Turn]) -> Iterator[Key]:
    """Prompts with an older turn that is not the user's, or not as it was."""
    for key, ones in recalled.items():
        for one in ones:
            turn = turns.get((key[0], one.request_id))
            if turn is None or (turn.prompt, turn.answer) != (one.prompt, one.answer):
                yield key


def _question(request: dict | None) -> tuple[object, ...] | None:
    return request and tuple(request.get(name) for name in ("prompt", "messages", "max_tokens", "tools"))


def are_words(tokens: Sequence[int], prompt: Sequence[int], authors: Sequence[Author]) -> bool:
    """Whether the paced engine says these tokens; the last of the `authors` comes first."""
    for index, token in enumerate(tokens):
        author = next(one for one in authors if one.begin <= index)
        if word(prompt, index - author.base, author.version)[0] != token:
            return False
    return True
