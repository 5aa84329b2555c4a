"""The words of answers: each token is the one that the paced engine must say, given the turns that are remembered."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING

from app.delivery.resume.answer_log import call_id
from app.features.guard.masking import without_result
from app.features.guard.texts import hidden_steps
from app.private.mask import Mask
from app.private.value import PrivateValue
from app.reader import Answer, ReaderRule
from app.settings import Settings
from app.wire.event import NO_PLAN, Plan, RecalledTurn
from app.wire.turn import Turn
from models.interface.chat import ChatMessage, ModelCall, PastTurn
from models.interface.generation import FinishReason
from models.served.paced import BytePrompts, called
from tests.faults.plan_verdict import Author, are_words, authors_of
from tests.faults.tool_verdict import ToolTopics, possible_turns
from tests.faults.waits_verdict import Slept, SleptTurns

if TYPE_CHECKING:
    from tests.faults.records import Key
    from tests.faults.verdict import Masks, Verdict

Histories = list[list[PastTurn]]
_MOST_HISTORIES = 64
"""Of a conversation that are kept as possible; five that sleep among ten turns have had more than 16."""


def judge_texts(
    requests: dict[Key, dict],
    rule: ReaderRule,
    turns: dict[Key, Turn],
    settings: Settings,
    erased: Callable[[str, str], float | None],
    topics: ToolTopics,
    verdict: Verdict,
    masks: Masks,
    waits: Mapping[Key, Mapping[str, int]],
) -> None:
    """Add the requests with other words to the verdict's `changed`, and those with other calls to `wrong_calls`.

    A conversation is forgotten once its last turn is older than the TTL, as of the request's own time. Where that time
    is behind the broker's, because the producer's clock is, the sweep may have been first: either prompt is right. For
    an erased conversation, any number of the last turns is right, since it is not known which of them the erasure met;
    but those that were asked for after it are remembered.
    """
    histories: dict[tuple[str, str], list[list[PastTurn]]] = defaultdict(lambda: [[]])
    last: dict[tuple[str, str], int] = {}
    later: Counter[tuple[str, str]] = Counter()
    private = PrivateTurns(cache(masks))
    slept = SleptTurns()
    forks = Forked(requests, settings.conversation_turns, verdict.slept)
    ttl_ms = settings.conversation_ttl_s * 1000
    for key, request in _with_own_turns(requests, turns, verdict, histories):
        turn = turns[key]
        conversation = (turn.user_id, turn.conversation_id)
        # A timestamp that is ahead counts as of when the broker had the request, which is before its turn ended.
        planned = verdict.plans.get(key, NO_PLAN).at
        at = min(verdict.asked_at[key], turn.created_at) if planned is None else planned
        ended = last.get(conversation, 0)
        candidates = [[]] if at - ended > ttl_ms else histories[conversation]
        if at - ended <= ttl_ms < turn.created_at - ended:
            candidates = [*candidates, []]
        request = forks.request(request)  # noqa: PLW2901 - a fork may ask the question of another one
        candidates = forks.begin(conversation, request, erased, candidates)
        if conversation in forks.unknown:
            continue
        erased_at = erased(*conversation)
        if erased_at is not None:
            least = later[conversation]
            candidates = [one[first:] for one in candidates for first in range(max(0, len(one) - least) + 1)]
        answer = rule.answers.get(key)
        tokens = () if answer is None else answer.tokens
        plan, takeovers = verdict.plans.get(key, NO_PLAN), verdict.takeovers.get(key, [])
        authors = [] if answer is None else authors_of(takeovers, answer, turn, plan.chosen or 0)
        recalled = _past(plan.recalled or ())
        first = _past(verdict.first_recalled.get(key, plan.recalled or ()))
        remembered: list[tuple[list[PastTurn], Mask]] = []
        after: list[list[PastTurn]] = []
        begun_at = _begun_at(turn, answer)
        most = settings.conversation_turns
        added = _added(requests, verdict, key)
        rows = ((base, row) for base in candidates for row in slept.orders(base, most, begun_at))
        for base, before in ((base, seen) for base, row in rows for seen in slept.as_seen(row, at, begun_at)):
            own = before if not request.get("messages") or request.get("continue_conversation") else []
            seen = [[*first, *own], [*recalled, *own]]
            hiding = partial(private.mask, key, own, verdict)
            turns_now: list[PastTurn] = []
            for rounds in range(1, 2 + (len(topics.calls.get(key, ())) if recalled != first else 0)):
                turns_now += _turns_now(
                    seen, rounds, key, request, turn, tokens, authors, topics, settings, hiding, added
                )
            remembered += [(seen[0], hiding(0))] if turns_now else []
            # A turn with results of calls contains the one that has made them.
            others = base[:-1] if request.get("tool_results") else base
            after += [[*others, now] for now in turns_now]
        if not remembered:
            # One that is rejected, or a fork of what left no turn, may be stopped first, and has read nothing then.
            verdict.changed += (
                [key] if tokens or not (request.get("while_busy") == "reject" or "from" in request) else []
            )
        elif answer is not None and not _has_its_calls(answer, remembered, request, authors[0], settings):
            verdict.wrong_calls.append(key)
        is_kept = bool(turn.answer or turn.reasoning)
        as_kept = partial(_as_kept, plan)
        if key in verdict.slept:
            after = slept.add(after, request, Slept.of(turn, waits.get(key, {}), verdict.unseen[key]), as_kept)
        after = [[*one[:-1], as_kept(one[-1])] for one in after]
        slept.end(after, turn.created_at)
        private.end(turn, after)
        if is_kept or (key in verdict.slept and after):
            unknown = [[*before, PastTurn(turn.prompt, turn.answer)] for before in candidates]
            distinct = dict.fromkeys(map(tuple, after or unknown))
            histories[conversation] = [list(one) for one in distinct][:_MOST_HISTORIES]
            forks.add(conversation, turn.request_id, histories[conversation])
            last[conversation] = turn.created_at
            later[conversation] += at > (erased_at or 0) and not request.get("tool_results")


@dataclass(frozen=True, slots=True)
class PrivateTurns:
    """The values that the rows of turns name: those who read such a turn as it ended have them hidden. An open turn
    names none: its readers have it read by the guard.
    """

    _masks: Masks
    _values: defaultdict[tuple[str, PastTurn], dict[PrivateValue, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def end(self, turn: Turn, histories: Histories) -> None:
        """The turn in which these end is over."""
        for one in histories:
            self._values[turn.user_id, one[-1]] |= dict.fromkeys(turn.private or ())

    def mask(self, key: Key, read: Sequence[PastTurn], verdict: Verdict, index: int) -> Mask:
        """That of the prompt whose first token has this index."""
        named = (value for one in read for value in self._values.get((key[0], one), ()))
        return self._masks(key[0], tuple(dict.fromkeys((*verdict.hidden_at(key, index), *named))))


def _as_kept(plan: Plan, written: PastTurn) -> PastTurn:
    """The turn in its conversation: without the results of calls if the guard has blocked it, whatever has ended it."""
    is_blocked = plan.filtered is not None
    return written._replace(steps=tuple(map(without_result, written.steps))) if is_blocked else written


def _with_own_turns(
    requests: dict[Key, dict], turns: dict[Key, Turn], verdict: Verdict, histories: dict[tuple[str, str], Histories]
) -> Iterator[tuple[Key, dict]]:
    """The requests with turns, without those whose words went into another answer. If that was stopped meanwhile, and
    not rolled back, they may be a turn of their own in the conversation.
    """
    for key, request in requests.items():
        plan = verdict.plans.get(key, NO_PLAN)
        if key in turns and plan.steered is None:
            yield key, request
        elif key in turns:
            turn, into = turns[key], turns.get((key[0], plan.steered))
            is_back = verdict.plans.get((key[0], plan.steered or ""), NO_PLAN).rolled_back
            is_stopped = into is None or into.finish_reason in {FinishReason.CANCELLED, FinishReason.DEADLINE}
            if is_stopped and not is_back:
                before = histories[turn.user_id, turn.conversation_id]
                before += [[*one, PastTurn(turn.prompt, turn.answer)] for one in before]


class Forked:
    """What conversations may have been behind each of their turns, for those that begin as copies of them.

    unknown: Copies of what has slept, was erased or is not known: nothing is said about their words.
    """

    def __init__(self, requests: Mapping[Key, dict], most: int, slept: Iterable[Key]) -> None:
        self._most = most
        of_request = {key: (key[0], one.get("conversation_id", "default")) for key, one in requests.items()}
        self._open = {of_request[key] for key in slept if key in of_request}
        self.unknown = {of_request[key] for key, one in requests.items() if "from" in one}
        self._behind: dict[tuple[str, str], dict[str, list[list[PastTurn]]]] = defaultdict(dict)

    def source(self, request: dict) -> tuple[str, str]:
        return request["user_id"], request["from"].get("conversation_id", "default")

    def add(self, conversation: tuple[str, str], request_id: str, histories: list[list[PastTurn]]) -> None:
        self._behind[conversation][request_id] = histories

    def request(self, request: dict) -> dict:
        """With the question of the turn that is asked again."""
        if request.get("from", {}).get("index") is None or request.get("prompt"):
            return request
        found = self._behind[self.source(request)].get(request["from"]["request_id"])
        return request if found is None else {**request, "prompt": found[0][-1].prompt}

    def begin(
        self,
        conversation: tuple[str, str],
        request: dict,
        erased: Callable[[str, str], float | None],
        own: list[list[PastTurn]],
    ) -> list[list[PastTurn]]:
        """Up to the turn that a fork names; older ones may have left the row by then. Empty if nothing is known. The
        `own` ones of what is no fork.
        """
        if "from" not in request:
            return own
        source, fork = self.source(request), request["from"]
        behind = self._behind[source]
        found = behind.get(fork["request_id"])
        if found is None or erased(*source) is not None or source in self._open | self.unknown:
            return []
        names = [*behind][: [*behind].index(fork["request_id"]) + (fork.get("index") is None)]
        self._behind[conversation] = {name: behind[name] for name in names}
        self.unknown.discard(conversation)
        whole = [one if fork.get("index") is None else one[:-1] for one in found]
        if len(behind) < self._most:
            return whole
        return [one[first:] for one in whole for first in range(len(one) or 1)]


def _added(requests: dict[Key, dict], verdict: Verdict, key: Key) -> list[tuple[int, str]]:
    """What later requests have said while the answer ran, and behind which of its tokens."""
    return [(at, requests[key[0], one].get("prompt", "")) for one, at in verdict.added.get(key, {}).items()]


def _begun_at(turn: Turn, answer: Answer | None) -> int:
    """When its first token was there, or later."""
    first = answer.segments[0] if answer is not None and answer.segments else None
    at = None if first is None or first.index else first.timestamp
    return turn.created_at if at is None else min(at, turn.created_at)


def _past(recalled: Iterable[RecalledTurn]) -> list[PastTurn]:
    return [PastTurn(one.prompt, one.answer) for one in recalled]


def _turns_now(
    seen: Sequence[Sequence[PastTurn]],
    rounds: int,
    key: Key,
    request: dict,
    turn: Turn,
    tokens: Sequence[int],
    authors: Sequence[Author],
    topics: ToolTopics,
    settings: Settings,
    hiding: Callable[[int], Mask],
    added: Sequence[tuple[int, str]],
) -> Iterator[PastTurn]:
    """The turns that may be remembered of a request with this history; none if the engine cannot have written them.

    The first `rounds` between calls of tools have read the first history that was `seen`, later ones the last: an
    erasure may have met turns that were recalled. `hiding`: the mask of the prompt whose first token has this index.
    """

    def build(steps: Sequence[ChatMessage] = (), begin: int = 0) -> Sequence[int]:
        now = sum(step.role == "assistant" for step in steps)
        return _prompt_ids(seen[0 if now < rounds else -1], request, settings, hiding(begin), steps)

    if request.get("tool_mode") == "kafka":
        calls = topics.calls.get(key, ())
        tools = [tool["function"]["name"] for tool in request["tools"]]
        reasons = bool(request.get("reasoning_effort"))
        yield from possible_turns(
            build, turn, request["max_tokens"], tokens, calls, topics, tools=tools, reasons=reasons, added=added
        )
    elif (results := request.get("tool_results")) and seen[0]:
        if are_words(tokens, build(), authors):
            yield PastTurn(seen[0][-1].prompt, turn.answer, _with_results(seen[0][-1], results))
    elif are_words(tokens, build(), authors):
        yield PastTurn(turn.prompt, turn.answer)


def _with_results(turn: PastTurn, results: Sequence[dict[str, str]]) -> tuple[ChatMessage, ...]:
    """The steps of a turn that ended in calls, once their results are there."""
    asked = ChatMessage("assistant", turn.answer)
    return (*turn.steps, asked, *(ChatMessage("tool", one["content"], call_id=one["tool_call_id"]) for one in results))


def _prompt_ids(
    before: Sequence[PastTurn], request: dict, settings: Settings, mask: Mask, steps: Sequence[ChatMessage] = ()
) -> Sequence[int]:
    """What the model reads."""
    if (results := request.get("tool_results")) and before:
        *before, last = before
        request = {"prompt": last.prompt}
        steps = (*_with_results(last, results), *steps)
    hidden = [
        PastTurn(mask.hide(one.prompt), mask.hide(one.answer), hidden_steps(one.steps, mask), one.before)
        for one in before
    ]
    steps = hidden_steps(steps, mask)
    if request.get("messages"):
        messages = [ChatMessage(one["role"], mask.hide(one["content"])) for one in request["messages"]]
        return BytePrompts().build(settings.system_prompt, hidden, messages=[*messages, *steps]).ids
    prompt = mask.hide(request.get("prompt") or "")
    return BytePrompts().build(settings.system_prompt, hidden, prompt, steps=steps).ids


def _has_its_calls(
    answer: Answer,
    histories: Sequence[tuple[Sequence[PastTurn], Mask]],
    request: dict,
    author: Author,
    settings: Settings,
) -> bool:
    """Whether the answer ended in the call that the paced engine must make after one of these histories, if any."""
    if answer.end is None or answer.end.finish_reason is not FinishReason.TOOL_CALLS:
        return answer.end is None or answer.end.tool_calls is None
    (call,) = answer.end.tool_calls or (None,)
    prompts = (_prompt_ids(before, request, settings, mask) for before, mask in histories)
    expected = {called(prompt, len(answer.tokens) - author.base) for prompt in prompts}
    right_id = call_id(answer.user_id, answer.request_id, 0)
    return (
        bool(request.get("tools"))
        and call is not None
        and call.id == right_id
        and (ModelCall(call.name, call.arguments) in expected)
    )
