"""An answer falls asleep, goes on, and ends.

Asleep: one transaction writes its rows (tables/asleep.py), puts its turn so far, with its calls open, into the
conversation, and commits the offset of its record. Later requests of the conversation see that it waits. What it has
read stays in its rows: when it goes on, it reads that and nothing later.

It goes on behind what `tokens` has of it. No token of its next round exists, so another model may write it. Its end
deletes its rows, and replaces the open turn where it stands.
"""

from __future__ import annotations

import dataclasses

import msgspec

from app.answering.dialogue import before_of, question_of, steps_of
from app.answering.kept import Kept
from app.answering.run import Asleep, Run
from app.delivery.commits.commit import Commit
from app.delivery.record import REQUESTS
from app.delivery.sleepers import Sleepers
from app.features.open_calls import OpenCalls
from app.features.programs.history import shown, text_behind
from app.features.recall.erased import without_erased
from app.features.waits.segments import segments_of
from app.features.waits.states import ENDED, erased_record, state_record, waited_for
from app.policy.file import DEFAULT_MODEL, WaitRules
from app.wire.codec import WOKEN_HEADER
from app.wire.event import WOKEN
from app.wire.record_size import MAX_RECORD_BYTES
from tables import records
from tables.asleep import Head, KeptAnswer, KeptMemory, Sleep, Sleeper
from tables.records import Conversation, KeptTurn, RowChange, Table
from tables.tool_calls import NO_ROUNDS, ToolOutcome, ToolRounds, row

MAX_ANSWER_BYTES = 512 * 1024
"""Of a `KeptAnswer`: an answer with more stays open, so that each of its segments fits into one event again."""
MAX_VALUE_BYTES = MAX_RECORD_BYTES - (8 << 10)
OPEN = "this call waits for {}"
"""What later requests of the conversation read in place of a result."""
SILENT = "this answer is to come"
"""And in place of one that has said nothing yet."""


def may_sleep(run: Run, calls: OpenCalls, rules: WaitRules) -> bool:
    """Whether nothing keeps the answer open: it is stopped or erased, is too large for its rows, has log probabilities
    (which are not kept), or too many sleep.
    """
    inflight, request, answer = run.inflight, run.accepted.request, run.answer
    if inflight.stop.reason is not None or inflight.on_commit or run.forgets:
        return False
    if answer.logprobs or request.prompt_logprobs is not None:
        return False
    return has_room(run.ownership.sleepers, calls, rules, request.user_id, request.tenant)


def has_room(sleepers: Sleepers, calls: OpenCalls, rules: WaitRules, user_id: str, tenant: str | None) -> bool:
    """Whether one more of the user may sleep."""
    count = calls.schedule.count
    return sleepers.asleep_of(user_id) < rules.per_user and (count is None or count.has_room(tenant, rules))


def asleep(run: Run, calls: OpenCalls, rounds: ToolRounds) -> Asleep | None:
    """Decide that the answer sleeps, with these rounds; None if its rows have no room for it."""
    key, sleepers = run.key, run.ownership.sleepers
    sleeper = _sleeper_of(run, rounds)
    is_long = len(records.encode(sleeper.answer)) > MAX_ANSWER_BYTES
    if is_long or len(sleeper.value or b"") + len(records.key(*key)) > MAX_VALUE_BYTES:
        return None
    calls.schedule.add(key, sleeper.head)
    changes = (*sleepers.put(key, sleeper), calls.decide(key, rounds), row(*key, None), *_open_turn(run, rounds))
    commit = Commit(run.accepted.record, changes, (state_record(run.settings, key, sleeper.head, rounds),))

    def settle() -> None:
        sleepers.settle([(key, sleeper)])
        calls.settle({key: rounds})

    return Asleep(commit, settle)


def _sleeper_of(run: Run, rounds: ToolRounds) -> Sleeper:
    accepted, answer, now = run.accepted, run.answer, run.ownership.clock.now()
    record, request, before = accepted.record, accepted.request, accepted.sleeper
    until, deadline = rounds.due_at, None
    if request.deadline_ms is not None:
        deadline = min(record.timestamp, accepted.at) + request.deadline_ms
        until = min(until, deadline)
    written = answer.repeated
    if written is None and before is not None:
        written = before.head.told_at, before.head.tokens_offset
    ends = {one.end for one in rounds.rounds} | {answer.plan.from_index or 0}
    kept = KeptAnswer(
        timestamp=record.timestamp,
        key=record.key,
        headers=tuple((name, value) for name, value in record.headers if name != WOKEN_HEADER),
        plan=without_erased(answer.plan, run.ownership.marks, request.user_id),
        segments=segments_of(run, ends),
    )
    head = Head(
        state=Sleep.ASLEEP,
        conversation_id=request.conversation_id,
        tenant=request.tenant,
        until=until,
        deadline=deadline,
        at=accepted.at,
        slept_at=now,
        since=now if before is None else before.head.since,
        wakes=0 if before is None else before.head.wakes,
        beside=answer.beside_bytes,
        told_at=now if written is None else written[0],
        epoch=run.ownership.epoch,
        tokens_offset=run.ownership.offsets[REQUESTS].began(record.offset) if written is None else written[1],
    )
    sleeper = Sleeper(head, record.value, kept, KeptMemory(run.memory, run.erased_at))
    size = sum(len(change.value or b"") for change in sleeper.rows(*run.key)) + len(records.encode(rounds))
    return msgspec.structs.replace(sleeper, head=msgspec.structs.replace(head, size=size))


def _open_turn(run: Run, rounds: ToolRounds) -> tuple[RowChange, ...]:
    """The conversation with the turn so far. While a guard hides values, what is written of a turn is decided at its
    end, so there is none before.
    """
    request, now = run.accepted.request, run.ownership.clock.now()
    if not request.store or request.is_raw or run.answer.plan.private is not None:
        return ()
    run.drop_erased()
    last = rounds.rounds[-1]
    waiting = rounds
    for call in last.missing:
        waiting = waiting.answered(ToolOutcome(call.id, OPEN.format(call.name)))
    waiting, said = shown(waiting), text_behind(waiting)
    if not said and not waiting.steps:
        said = SILENT
    turn = KeptTurn(
        request_id=request.request_id,
        prompt=question_of(request, run.memory),
        answer=said,
        at=now,
        steps=(*steps_of(request, run.memory), *(dataclasses.replace(one, reasoning="") for one in waiting.steps)),
        before=before_of(request, run.memory),
        after=request.previous_request_id or "",
        open=True,
    )
    conversation = run.rules.remember(run.conversation, turn, run.accepted.at)
    return (_conversation_row(run, conversation),)


def _conversation_row(run: Run, conversation: Conversation) -> RowChange:
    conversation = msgspec.structs.replace(conversation, erased_at=run.marks.at)
    return RowChange(Table.CONVERSATIONS, records.key(*run.accepted.conversation), records.encode(conversation))


async def go_on(run: Run) -> None:
    """Tell readers that the answer goes on, by another model if the one that wrote it is not served any more."""
    plan, request, former = run.answer.plan, run.accepted.request, run.accepted.former
    author = former.answer.segments[-1].model_version if former.answer is not None and former.has_begun else None
    details = {"kind": waited_for(run.answer.rounds)}
    if author is not None and run.models.decided(author) is None:
        name = next((one for one in (plan.model, request.model, DEFAULT_MODEL) if one and run.models.find(one)), None)
        if name is not None:
            details["model"] = name
            await run.replan(msgspec.structs.replace(plan, model=name, from_index=run.answer.index))
    await run.answer.notice(WOKEN, "the answer goes on", details)


def kept_at_end(run: Run, kept: Kept, rounds: ToolRounds) -> Kept:
    """With the deletion of the rows of an answer that has slept; one that leaves no turn leaves no open one either."""
    assert run.accepted.sleeper is not None
    key, head = run.key, run.accepted.sleeper.head
    run.drop_erased()
    kept = without_rows(run, kept, head, rounds)
    if (kept.row is None or kept.is_empty) and run.conversation is not None:
        turns = tuple(one for one in run.conversation.turns if one.request_id != key[1] or not one.open)
        if len(turns) < len(run.conversation.turns):
            kept = kept.with_change(_conversation_row(run, msgspec.structs.replace(run.conversation, turns=turns)))
    return kept


def without_rows(run: Run, kept: Kept, head: Head, rounds: ToolRounds = NO_ROUNDS) -> Kept:
    """With the deletion of the rows, and the state that others learn."""
    key, settings = run.key, run.settings
    for change in run.ownership.sleepers.end(key):
        kept = kept.with_change(change)
    return kept.with_output(
        erased_record(settings, key) if run.forgets else state_record(settings, key, head, rounds, state=ENDED)
    )
