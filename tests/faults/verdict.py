"""The verdict from outside: what the topics hold after everything that was done to the workers.

Reads `requests`, `tokens` and `turns` as any user can, read_committed, and counts what the contract rules out. With the
`paced` engine the words of every answer can be computed from its prompt, so that a changed token shows too. The
simulation (tests/simulation) is judged by the same rules.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from app.policy.agents import AgentRules
from app.policy.tools import ApproveRules
from app.private.mask import NO_MASK, Mask
from app.private.value import PrivateValue
from app.reader import Answer, ReaderRule
from app.settings import Settings
from app.wire.codec import WOKEN_HEADER, decode
from app.wire.event import (
    FALLBACK,
    NO_PLAN,
    PLAN,
    RESUMED,
    STEERED,
    TOOL_CALLS,
    WAITING,
    WOKEN,
    EventType,
    Notice,
    Plan,
    RecalledTurn,
    TokenEvent,
)
from app.wire.ids import partition_for
from app.wire.tool_records import ToolCallRecord
from app.wire.tools import ToolCall
from app.wire.turn import Turn
from models.interface.generation import FinishReason
from tables.records import Table
from tests.faults.agents_verdict import as_agent_of
from tests.faults.audit_verdict import wrong_audit
from tests.faults.desks import results_of, wrong_approvals
from tests.faults.plan_verdict import is_as_decided, wrong_memories, wrong_repeats
from tests.faults.reasoning_verdict import is_split
from tests.faults.records import Fetched, Key, Records, read_topic, turn_of
from tests.faults.texts_verdict import judge_texts
from tests.faults.tool_verdict import APPROVED_TOOL, ToolTopics, read_tool_topics
from tests.faults.waits_topic import begun_early, slept_by, timed_in, wrong_waits

Masks = Callable[[str, Iterable[PrivateValue]], Mask]
"""The mask of these values of a user."""
REQUEST_ID = r"[A-Za-z0-9._:-]{1,64}"
FAULTS = (
    "lost",
    "duplicate_turns",
    "gaps",
    "repeats",
    "second_ends",
    "changed",
    "turn_differs",
    "out_of_order",
    "torn_off",
    "wrong_errors",
    "wrong_letters",
    "wrong_rows",
    "wrong_calls",
    "wrong_plans",
    "wrong_audit",
    "wrong_waits",
    "wrong_order",
)


HasMet = Callable[[str, RecalledTurn], bool]
"""Whether an erasure has met a turn of a user."""
Replay = Callable[[Records, Records, Records], Awaitable[list[Key]]]
"""From all records of `requests`, `tokens` and `turns` the requests whose tokens are not the expected ones."""


@dataclass(slots=True)
class Verdict:
    """Counts of what must not be; `requests` and the rest are what was looked at."""

    requests: int = 0
    answered: int = 0
    turns: int = 0
    events: int = 0
    epochs: int = 0
    late_events: int = 0
    resumed: int = 0
    refused: int = 0
    calls: int = 0
    """Calls of tools over Kafka."""
    sleeps: int = 0
    """Records that have woken an answer, or a request whose time had come."""
    lost: list[Key] = field(default_factory=list)
    duplicate_turns: list[Key] = field(default_factory=list)
    gaps: list[Key] = field(default_factory=list)
    repeats: list[Key] = field(default_factory=list)
    second_ends: list[Key] = field(default_factory=list)
    changed: list[Key] = field(default_factory=list)
    turn_differs: list[Key] = field(default_factory=list)
    out_of_order: list[Key] = field(default_factory=list)
    torn_off: list[Key] = field(default_factory=list)
    """Answers that could not be resumed, and ended as `partial`."""
    asked_at: dict[Key, int] = field(default_factory=dict)
    """The timestamp of each request's record."""
    plans: dict[Key, Plan] = field(default_factory=dict)
    """The decisions about each request that has a notice `plan`."""
    first_recalled: dict[Key, Sequence[RecalledTurn]] = field(default_factory=dict)
    """The recalled turns in the prompt of each answer's first round; an erasure may make a later plan have fewer."""
    private_at: dict[Key, dict[int, Sequence[PrivateValue]]] = field(default_factory=dict)
    """The values that plans hid when tokens were written, by the index of the first of these tokens."""
    ever_recalled: dict[Key, dict[RecalledTurn, None]] = field(default_factory=dict)
    """Those of all plans of an answer."""
    takeovers: dict[Key, list[Plan]] = field(default_factory=dict)
    """Those by which another model continued the answer, in the order of their indexes."""
    errors: Counter[str] = field(default_factory=Counter)
    """Answers that ended in an error, by its code."""
    wrong_audit: list[str] = field(default_factory=list)
    wrong_waits: list[str] = field(default_factory=list)
    """Answers that slept and were not woken as often, or are told as open; calls that were not made as was decided."""
    wrong_order: list[str] = field(default_factory=list)
    """Requests with a word of `while_busy` that was not obeyed, and answers that were ended without one."""
    wrong_errors: list[Key] = field(default_factory=list)
    """Error events without a cause, and missing ones."""
    wrong_letters: list[Key] = field(default_factory=list)
    """Records without the one dead letter that they had to have, or with one that they had not."""
    added: dict[Key, dict[str, int]] = field(default_factory=dict)
    """The later requests whose words went into an answer, and behind which of its tokens."""
    unseen: dict[Key, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Calls for which answers wait without an open turn, since a guard hides values in them."""
    slept: dict[Key, bool] = field(default_factory=dict)
    """Requests whose answers have said that they wait, and whether that was the last of it."""
    wrong_rows: list[Key] = field(default_factory=list)
    """Turns that are not in Milvus as they are, and rows there that are no turn's."""

    wrong_calls: list[Key] = field(default_factory=list)
    """Answers whose calls of tools are not those that their requests lead to, or not those of their turns."""
    wrong_plans: list[Key] = field(default_factory=list)
    """Answers that were decided twice, or too late, or whose tokens or turns are not as decided."""

    def hidden_at(self, key: Key, index: int) -> Sequence[PrivateValue]:
        """What the answer's plan hid of the prompt whose first token has this index."""
        last = self.plans.get(key, NO_PLAN).private or ()
        return self.private_at.get(key, {}).get(index, last)

    @property
    def recalled(self) -> int:
        """Older turns that were found in Milvus for a prompt."""
        return sum(map(len, self.ever_recalled.values()))

    @property
    def repeated(self) -> int:
        """Answers from the response cache."""
        return sum(plan.cached is not None for plan in self.plans.values())

    @property
    def faults(self) -> dict[str, list[Key]]:
        return {name: found for name in FAULTS if (found := getattr(self, name))}

    @property
    def clean(self) -> bool:
        return not self.faults

    def line(self) -> str:
        seen = f"{self.requests} requests, {self.answered} answered, {self.turns} turns, {self.events} events"
        kinds = {
            "calls": self.calls,
            "sleeps": self.sleeps,
            "plans": len(self.plans),
            "taken over": len(self.takeovers),
        }
        kinds |= {"repeated": self.repeated, "turns recalled": self.recalled}
        seen += "".join(f", {count} {kind}" for kind, count in kinds.items() if count)
        seen += f", {self.epochs} epochs, {self.resumed} resumed, {self.late_events} late events dropped"
        wrong = ", ".join(f"{name} {len(found)}: {found[:3]}" for name, found in self.faults.items())
        return f"{seen}; {wrong or 'nothing wrong'}"


async def judge(
    settings: Settings,
    *,
    paced: bool = True,
    replay: Replay | None = None,
    audited: bool = True,
    approvals: ApproveRules | None = None,
) -> Verdict:
    """`audited`: all workers write `audit`. `approvals`: those that calls of `APPROVED_TOOL` need."""
    requests, tokens, turns = [await read_topic(settings, topic) for topic in ("requests", "tokens", "turns")]
    calls, results = [await read_topic(settings, topic) for topic in ("tool-calls", "tool-results")]
    waits, controls, audit = [await read_topic(settings, topic) for topic in ("waits", "controls", "audit")]
    topics = read_tool_topics(calls, results, settings, results_of(audit, controls), APPROVED_TOOL)
    verdict = judge_records(
        requests, tokens, turns, settings, paced=paced, topics=topics, slept=slept_by(waits), timed=timed_in(waits)
    )
    verdict.wrong_waits += [*begun_early(requests, tokens), *wrong_waits(waits, requests, tokens, ())]
    verdict.sleeps = sum(dict(record.headers).get(WOKEN_HEADER) is not None for record in requests)
    if approvals is not None:
        ended = {(one.user_id, one.request_id): str(one.finish_reason) for one in map(turn_of, turns)}
        made = [one for one in calls if decode(ToolCallRecord, one.value, one.headers).name == APPROVED_TOOL]
        verdict.wrong_waits += wrong_approvals(audit, controls, made, ended, approvals)
    if audited:
        heads = await read_topic(settings, f"{settings.app_id}-{Table.AUDIT.value}-changelog")
        verdict.wrong_audit += wrong_audit(audit, heads, verdict.asked_at)
    if replay is not None:
        verdict.changed += await replay(requests, tokens, turns)
    return verdict


def judge_records(
    requests: Iterable[Fetched],
    tokens: Iterable[Fetched],
    turns: Iterable[Fetched],
    settings: Settings,
    *,
    paced: bool,
    mixed: bool = False,
    erased: Callable[[str, str], float | None] = lambda _user, _conversation: None,
    has_met: HasMet = lambda _user, _turn: False,
    topics: ToolTopics | None = None,
    masks: Masks = lambda _user, _values: NO_MASK,
    slept: Mapping[Key, Mapping[str, int]] = MappingProxyType({}),
    timed: Collection[Key] = (),
    agents: Mapping[str, AgentRules] = MappingProxyType({}),
    programs: Collection[str] = (),
) -> Verdict:
    """`erased`: when the last mark stood that is about a conversation, None without one; `has_met`: whether an erasure
    has met a recalled turn; `masks` hide values from the model, `private` are those that rows name; `slept`: answers of
    which `waits` tells, and since when for each call; `timed`: requests that slept until their time. Workers that are
    `mixed` do not serve the same models, so before its first token an answer may be routed anew; one that is cancelled
    before it names the default model, if its own is not here. What answers of the
    agents `programs` say and call is judged elsewhere (programs_verdict.py).
    """
    topics = topics or ToolTopics()
    verdict = Verdict(wrong_calls=[*topics.wrong], calls=sum(map(len, topics.calls.values())))
    asked = {key: as_agent_of(one, agents) for key, one in _asked(requests, settings, verdict, timed).items()}
    verdict.requests = len(asked)
    of_programs = {key for key, one in asked.items() if one.get("agent") in programs}
    verdict.slept |= dict.fromkeys(slept, False)
    rule = _judge_tokens(tokens, verdict, has_met, mixed=mixed)
    ends = (answer.end for answer in rule.answers.values())
    verdict.errors.update(end.error.code for end in ends if end is not None and end.error is not None)
    written = _judge_turns(turns, verdict)
    for key, request in asked.items():
        answer = rule.answers.get(key)
        if answer is None or answer.end is None:
            verdict.lost.append(key)
            continue
        verdict.answered += 1
        if answer.end.finish_reason is FinishReason.PARTIAL and key not in of_programs:
            verdict.torn_off.append(key)
        if answer.end.type is EventType.DONE:
            if key not in written:
                verdict.lost.append(key)
            elif (written[key].answer, written[key].reasoning or "") != _kept_texts(
                request, answer, verdict.plans.get(key, NO_PLAN)
            ):
                verdict.turn_differs.append(key)
            elif (
                key not in of_programs
                and written[key].prompt
                and _ids_of(written[key].tool_calls)
                != [
                    *(call.tool_call_id for call in topics.calls.get(key, ())),
                    *_ids_of(answer.end.tool_calls),
                ]
            ):
                verdict.wrong_calls.append(key)
            is_unwritten = mixed and not answer.segments and answer.end.finish_reason is FinishReason.CANCELLED
            plan, by_whom = verdict.plans.get(key, NO_PLAN), paced and not is_unwritten
            if key in written and not is_as_decided(plan, answer, written[key], paced=by_whom):
                verdict.wrong_plans.append(key)
    verdict.wrong_plans += wrong_repeats(verdict.plans, rule, asked)
    verdict.wrong_plans += wrong_memories(verdict.ever_recalled, written)
    _judge_order(asked, written, verdict)
    if paced:
        verdict.wrong_calls[:] = [key for key in verdict.wrong_calls if key not in of_programs]
        asked = {key: one for key, one in asked.items() if key not in of_programs}
        judge_texts(asked, rule, written, settings, erased, topics, verdict, masks, slept)
        verdict.changed += [key for key in asked if key in rule.answers and not is_split(asked[key], rule.answers[key])]
    return verdict


def _ids_of(calls: Iterable[ToolCall] | None) -> list[str]:
    return [call.id for call in calls or ()]


def _kept_texts(request: dict, answer: Answer, plan: Plan) -> tuple[str, str]:
    """Those of its turn: none of a request that is not stored, or is rolled back."""
    return ("", "") if request.get("store") is False or plan.rolled_back else (answer.text, answer.reasoning)


def _asked(records: Iterable[Fetched], settings: Settings, verdict: Verdict, timed: Collection[Key]) -> dict[Key, dict]:
    """The first record of each request, in order of their offsets; what is no request counts as refused."""
    asked: dict[Key, dict] = {}
    for record in records:
        try:
            request = json.loads(record.value or b"")
            user, request_id = request["user_id"], request["request_id"]
            if user.encode() != record.key or not re.fullmatch(REQUEST_ID, request_id):
                raise ValueError(request_id)
            if partition_for(user, settings.partitions) != record.partition:
                raise ValueError(record.partition)
            key = (user, request_id)
            if key in timed and wakes_timer(record, request, verdict.asked_at.get(key)):
                asked.pop(key)
                verdict.asked_at.pop(key)
            asked.setdefault(key, request)
            verdict.asked_at.setdefault(key, record.timestamp)
        except (ValueError, KeyError, TypeError, AttributeError):
            verdict.refused += 1
    return asked


def wakes_timer(record: Fetched, request: dict, asked_at: int | None) -> bool:
    """Whether a request that has waited for its time did so until this record: it is as one that is sent then."""
    is_first = asked_at is not None and asked_at < request.get("not_before", 0)
    return is_first and dict(record.headers).get("woken") == b"1"


def _judge_tokens(records: Iterable[Fetched], verdict: Verdict, has_met: HasMet, *, mixed: bool) -> ReaderRule:
    rule = ReaderRule(remember=1 << 60)
    speaking: dict[tuple[str, str], Key] = {}
    for record in records:
        event = decode(TokenEvent, record.value, record.headers)
        verdict.events += 1
        verdict.epochs += event.type is EventType.FENCE
        key = (event.user_id or "", event.request_id or "")
        verdict.resumed += event.notice is not None and event.notice.code == RESUMED
        former = rule.answers.get(key)
        end = None if former is None else former.end
        repeated = rule.dropped.repeated
        update = rule.read(record.partition, record.offset, event)
        if update is not None and event.notice is not None and event.notice.code == PLAN:
            _judge_plan(msgspec.convert(event.notice.details, Plan), event, verdict, has_met, mixed=mixed)
        if update is not None and event.notice is not None and event.notice.code == STEERED:
            into = (key[0], str((event.notice.details or {})["into"]))
            verdict.added.setdefault(into, {}).setdefault(key[1], rule.answers[into].position)
        of_timer = event.notice is not None and (event.notice.details or {}).get("kind") == "timer"
        if event.notice is not None and event.notice.code in {WAITING, WOKEN} and not of_timer:
            _judge_sleep(event.notice, key, verdict)
        if update is not None and (update.gap or update.cut is not None):
            verdict.gaps.append(key)
        if update is not None and (event.type is EventType.TOKEN or _calls(event)):
            verdict.first_recalled.setdefault(key, verdict.plans.get(key, NO_PLAN).recalled or ())
        if update is not None and event.type is EventType.TOKEN:
            verdict.private_at.setdefault(key, {})[event.index or 0] = verdict.plans.get(key, NO_PLAN).private or ()
            conversation = (event.user_id or "", event.conversation_id or "")
            before = rule.answers[speaking.setdefault(conversation, key)]
            waits = verdict.slept.get((before.user_id, before.request_id), False)
            if speaking[conversation] != key and before.end is None and not waits:
                verdict.out_of_order.append(key)
            speaking[conversation] = key
        if rule.dropped.repeated > repeated and not event.copy:
            if not event.is_end or end is None:
                verdict.repeats.append(key)
            elif _end_of(end) != _end_of(event):
                verdict.second_ends.append(key)
    verdict.late_events = rule.dropped.late
    return rule


def _judge_sleep(notice: Notice, key: Key, verdict: Verdict) -> None:
    verdict.slept[key] = notice.code == WAITING
    if notice.code == WAITING:
        hides = verdict.plans.get(key, NO_PLAN).private is not None
        note = verdict.unseen[key].add if hides else verdict.unseen[key].discard
        note(str((notice.details or {})["wait_id"]))


def _judge_plan(plan: Plan, event: TokenEvent, verdict: Verdict, has_met: HasMet, *, mixed: bool) -> None:
    key = (event.user_id or "", event.request_id or "")
    known = verdict.plans.get(key, NO_PLAN)
    if mixed and not event.index and key in verdict.plans:
        known = _routed_as(plan, known)
    known = _without_erased(known, plan, key[0], has_met)
    before = _without_erased(verdict.plans.get(key, plan), plan, key[0], has_met)
    is_new = before not in (plan, msgspec.structs.replace(plan, cached=None))
    wrong_place = (event.index or None) != plan.from_index
    if ((is_new and plan.notice != FALLBACK) or wrong_place) and not _has_grown(known, plan):
        verdict.wrong_plans.append(key)
    verdict.plans[key] = plan
    verdict.ever_recalled.setdefault(key, {}).update(dict.fromkeys(plan.recalled or ()))
    if plan.from_index is not None:
        verdict.takeovers.setdefault(key, []).append(plan)


def _routed_as(plan: Plan, before: Plan) -> Plan:
    """The decisions before, with the route of this plan."""
    names = ("model", "route", "experiment", "arm", "notice", "cached")
    return msgspec.structs.replace(before, **{name: getattr(plan, name) for name in names})


def _calls(event: TokenEvent) -> bool:
    return event.notice is not None and event.notice.code == TOOL_CALLS


def _without_erased(before: Plan, plan: Plan, user: str, has_met: HasMet) -> Plan:
    """`before` without those of its recalled turns that `plan` lacks because they were erased meanwhile."""
    if not before.recalled:
        return before
    left = plan.recalled or ()
    kept = tuple(one for one in before.recalled if one in left or not has_met(user, one))
    return msgspec.structs.replace(before, recalled=kept)


def _has_grown(before: Plan, plan: Plan) -> bool:
    """Whether the guard has found more in what the model reads or writes next, the rest of a repeated answer is
    generated, a candidate is chosen, or a later request ends the answer, and all else is as it was decided.
    """
    cached = before.cached if plan.cached is None else plan.cached
    same = msgspec.structs.replace(plan, cached=cached)
    if before.filtered is None:  # the guard finds nothing more behind what it has blocked
        same = msgspec.structs.replace(same, private=before.private, flagged=before.flagged, filtered=None)
    if before.superseded is None or (plan.rolled_back and not before.rolled_back):
        same = msgspec.structs.replace(same, superseded=before.superseded, rolled_back=before.rolled_back)
    if before.chosen is None:
        same = msgspec.structs.replace(same, chosen=None, other_tokens=before.other_tokens)
    is_more = {*(before.private or ())} <= {*(plan.private or ())} and {*before.categories} <= {*plan.categories}
    return same == before and is_more


def _end_of(event: TokenEvent) -> tuple[object, ...]:
    code = None if event.error is None else event.error.code
    return event.type, event.index, event.finish_reason, code


def _judge_turns(records: Iterable[Fetched], verdict: Verdict) -> dict[Key, Turn]:
    turns: dict[Key, Turn] = {}
    for record in records:
        turn = turn_of(record)
        key = (turn.user_id, turn.request_id)
        if key in turns:
            verdict.duplicate_turns.append(key)
        turns[key] = turn
        verdict.turns += 1
    return turns


def _judge_order(requests: dict[Key, dict], turns: dict[Key, Turn], verdict: Verdict) -> None:
    """Turns of a conversation stand in the order of its requests, those that were stopped in the queue included; but
    for answers that have slept, and requests that are stopped before their time or beside
    those that they are rejected for or steered into, which end when they end.
    """
    empty = [(key, one) for key, one in requests.items() if key in turns and not turns[key].answer]
    out = {key for key, one in empty if "not_before" in one or one.get("while_busy") in ("reject", "steer")}
    out |= verdict.slept.keys() | {key for key, plan in verdict.plans.items() if plan.steered is not None}
    asked = defaultdict(list)
    for key, request in requests.items():
        if key in turns and key not in out:
            asked[request["user_id"], request.get("conversation_id", "default")].append(key)
    turns_of = defaultdict(list)
    for key, turn in turns.items():
        if key in out:
            continue
        turns_of[turn.user_id, turn.conversation_id].append(key)
    for conversation, keys in asked.items():
        verdict.out_of_order += [key for key, other in zip(keys, turns_of[conversation], strict=False) if key != other]


def counts(verdict: Verdict) -> Counter[str]:
    return Counter({name: len(found) for name, found in verdict.faults.items()})
