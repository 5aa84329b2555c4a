"""What a run of the simulation leaves behind, judged from outside: by the topics, the tables and the rows in Milvus."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from aiokafka import TopicPartition

from app.delivery.commits.changelog import changelog_topic
from app.delivery.partition import Partition, State
from app.private.mask import NO_MASK, Mask
from app.private.value import PrivateValue
from app.reader import ReaderRule
from app.search.rows import rows_of
from app.wire.codec import decode
from app.wire.dead_letters import cause_from
from app.wire.error import WireError
from app.wire.event import PLAN, TokenEvent
from app.wire.ids import partition_for
from app.wire.request import Request
from app.wire.turn import Turn
from app.wire.usage import UsageWindow
from app.wire.validation import check_partition, validate_request
from tables.records import GuardSecret, Table, decode_row, key_parts
from tables.store import PartitionStore
from tables.tool_calls import PROGRESS as CALLS_PROGRESS
from tables.usage import PROGRESS, Tally
from tests.faults.agents_verdict import Askings
from tests.faults.audit_verdict import wrong_audit
from tests.faults.desks import results_of, wrong_approvals
from tests.faults.moderation_verdict import wrong_moderation
from tests.faults.order_verdict import wrong_order
from tests.faults.programs_verdict import ProgramTopics, wrong_programs
from tests.faults.tool_verdict import NOBODY, read_tool_topics
from tests.faults.verdict import Key, Verdict, judge_records, wakes_timer
from tests.faults.waits_topic import begun_early, slept_by, timed_in, wrong_waits
from tests.simulation.broker import Entry
from tests.simulation.erasures import Erasures, Marked
from tests.simulation.foreign import wrong_foreign
from tests.simulation.forks import wrong_forks
from tests.simulation.hostile_verdict import Innocent, met_by_kills, readable, wrong_outcomes
from tests.simulation.limits import wrong_limits
from tests.simulation.process import Process
from tests.simulation.results import wrong_results
from tests.simulation.usage import wrong_usage
from tests.simulation.versions import wrong_versions

if TYPE_CHECKING:
    from tests.simulation.scenario import Simulation

_QUESTIONS = 64
_WAITED_MS = 600_000
_CLOCKS_MS = 2_000

# What ends a worker by delivery's own judgement; no other error proves that a promise was broken.
_OWN = ("FencedError", "LostRecordError")


@dataclass(slots=True)
class Outcome:
    verdict: Verdict
    steps: int
    wrong: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    """Errors that ended a process or a task: never right, and no proof that a promise was broken."""

    @property
    def clean(self) -> bool:
        return not (self.broken_promise or self.crashes)

    @property
    def broken_promise(self) -> bool:
        """Whether users can see that something is wrong: in the topics and tables, or by a worker that ends itself."""
        return not self.verdict.clean or bool(self.wrong) or any(name in line for name in _OWN for line in self.crashes)

    def line(self) -> str:
        return "; ".join([self.verdict.line(), *self.wrong, *self.crashes])


class Findings:
    """Of one run that is over."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self._innocent = Innocent(simulation)
        self._events, self._unreadable = readable(self._everything("tokens"))
        self._timed = timed_in(self._read("waits"))
        rules, askers = simulation.conditions.agents, simulation.askers
        self._agents = {} if rules is None else {"helper": rules}
        repeats = () if askers is None else askers.repeats
        self._askings = None if rules is None else Askings(self._read("requests"), self._events, repeats)
        self._quarantined = simulation.deadly | met_by_kills(simulation, self._events)

    def outcome(self) -> Outcome:
        erasures = self._erasures()
        verdict = judge_records(
            self._read("requests"),
            self._events,
            self._innocent.turns(self._read("turns")),
            self._sim.settings(),
            paced=True,
            mixed=self._sim.conditions.mixed,
            erased=erasures.stood_at,
            has_met=erasures.has_met,
            masks=self._mask,
            slept=slept_by(self._read("waits")),
            timed=self._timed,
            agents=self._agents,
            programs=self._sim.conditions.programs,
            topics=read_tool_topics(
                self._read("tool-calls"), self._read("tool-results"), self._sim.settings(), self._results_of_asked()
            ),
        )
        for name in ("turn_differs", "wrong_plans", "wrong_calls"):
            found = getattr(verdict, name)
            found[:] = [key for key in found if self._innocent.key(key)]
        # A request that was sent before an erasure leaves an empty turn, whatever its readers have.
        # One that was sent before the mark stood cannot be resumed: what its answer was built on is gone.
        if self._sim.conditions.mixed:  # an answer whose model is gone cannot always be continued
            verdict.torn_off.clear()
        planned = self._planned_at()
        sent = {key: min(at, planned.get(key, at)) for key, at in erasures.asked.items()}
        recalls = self._that_recall()
        verdict.torn_off[:] = [
            key
            for key in verdict.torn_off
            if sent[key] > (erasures.marked_for(key[0]) if key in recalls else erasures.marked_at(key))
        ]
        verdict.turn_differs[:] = [
            key for key in verdict.turn_differs if not erasures.touch_request(key) or self._is_kept(key)
        ]
        torn = self._sim.torn
        # With the plan that Kafka has lost, the verdict does not know who wrote the answer.
        unknown = (
            ("changed",) if self._sim.conditions.routed or self._sim.masked or self._sim.conditions.moderated else ()
        )
        if self._sim.conditions.routed:  # another model cannot go on behind calls that the former one has made
            unknown = (*unknown, "torn_off", "wrong_calls")
        for name in ("lost", "gaps", "repeats", "second_ends", "turn_differs", "wrong_plans", *unknown):
            found = getattr(verdict, name)
            found[:] = [key for key in found if key not in torn]
        # Kafka has lost what these answers repeat, or what their conversations were.
        conversations = erasures.conversations
        lost = {conversations[key] for key in torn if key in conversations}
        ended = {key for key, plan in verdict.plans.items() if plan.superseded is not None}
        bare = {conversations[key] for key in torn & ended if key in conversations}  # calls whose tokens are lost
        # Words into what Kafka has lost may be a turn of their own, and those that are stopped may be in none.
        steered = {key: (key[0], plan.steered) for key, plan in verdict.plans.items() if plan.steered is not None}
        stops = self._that_may_stop()
        # Which values the guard has found in them is known of the last round alone.
        masked = self._sim.masked
        bare |= {conversations[key] for key, into in steered.items() if masked or into in torn or key in stops}
        mute = {
            (one.user_id, one.request_id) for one in self._turns() if one.finish_reason == "stop" and not one.answer
        }
        bare |= {conversations[key] for key in torn & (mute | steered.keys()) if key in conversations}
        verdict.changed[:] = [key for key in verdict.changed if conversations.get(key) not in bare]
        sources = {key: (key[0], plan.cached) for key, plan in verdict.plans.items()}
        verdict.wrong_plans[:] = [key for key in verdict.wrong_plans if sources.get(key) not in torn]
        if unknown:
            verdict.changed[:] = [key for key in verdict.changed if conversations.get(key) not in lost]
        # One that was stopped behind calls, and has lost the text before them, is remembered with that text.
        stopped = {(one.user_id, one.request_id) for one in self._turns() if one.tool_calls and not one.answer}
        silent = {conversations[key] for key in torn & stopped if key in conversations}
        verdict.changed[:] = [key for key in verdict.changed if conversations.get(key) not in silent]
        users = {user for user, _ in torn}  # an end that is lost makes the next answer look early
        verdict.out_of_order[:] = [key for key in verdict.out_of_order if key[0] not in users]
        wrong = [*self._unreadable, *self._wrong(erasures, verdict)]
        wrong += erasures.kept(self._turns(), self._stores())
        wrong += erasures.wrong_for_sinks(self._read("erasures"))
        wrong += erasures.quoted(verdict.plans, verdict.ever_recalled, sent)
        for (key, digest), at in self._sim.read_at.items():
            # An owner that died before its first token has left no time of a request whose producer's clock is ahead.
            wrong += erasures.read({key: self._sim.prompts[key][digest]}, {key: min(sent.get(key, at), at)})
        wrong += erasures.quoting(self._turns(), self._questions_behind_answers())
        wrong += self._told_secrets(erasures)
        return Outcome(verdict, self._sim.world.steps, wrong, self._crashes())

    def _mask(self, user: str, values: Iterable[PrivateValue]) -> Mask:
        topic = changelog_topic(self._sim.settings(), Table.GUARD)
        at = TopicPartition(topic, partition_for(user, self._sim.partitions))
        secrets = [decode_row(entry.value or b"", GuardSecret).secret for entry in self._visible(at)]
        return Mask(secrets[-1], user, values) if secrets else NO_MASK

    def _owners(self) -> list[tuple[Process, Partition]]:
        return [
            (process, partition)
            for process in self._sim.alive
            for partition in process.worker.partitions.all.values()
            if partition.state is State.OWNED and not process.broken
        ]

    def stores_that_differ(self) -> list[str]:
        """From their changelogs: for good, or because a worker has not heard of a commit that the broker has."""
        wrong = []
        for process, partition in self._owners():
            for table in Table:
                at = TopicPartition(changelog_topic(self._sim.settings(), table), partition.number)
                rows: dict[bytes | None, bytes | None] = {entry.key: entry.value for entry in self._visible(at)}
                kept = {key: value for key, value in rows.items() if value is not None}
                if dict(partition.ownership.store.scan(table)) != kept:
                    wrong.append(f"{process.name}: {table.value} of {partition.number} differs from its changelog")
        return wrong

    def _wrong(self, erasures: Erasures, verdict: Verdict) -> list[str]:
        wrong = wrong_outcomes(self._sim, self._events, self._read("turns"), self._letters())
        owners = self._owners()
        if sorted(partition.number for _, partition in owners) != list(range(self._sim.partitions)):
            wrong.append(f"owners at the end: {[(process.name, partition.number) for process, partition in owners]}")
        wrong += self.stores_that_differ()
        wrong += self._wrong_usage(owners)
        wrong += self._wrong_audit()
        wrong += [
            f"{key!r} is left in the table of calls"
            for _, partition in owners
            for key, _value in partition.ownership.store.scan(Table.CALLS)
            if key != CALLS_PROGRESS
        ]
        wrong += [
            f"{key!r} is left in the table of answers that sleep"
            for _, partition in owners
            for key, _value in partition.ownership.store.scan(Table.ASLEEP)
        ]
        wrong += begun_early(self._read("requests"), self._events)
        wrong += wrong_order(
            self._read("requests"),
            self._events,
            {(turn.user_id, turn.request_id): turn for turn in self._turns()},
            [row for store in self._stores() for _, row in store.scan(Table.CONVERSATIONS)],
            self._questions_behind_answers(),
            self._timed,
            self._sim.torn,
        )
        wrong += wrong_forks(
            self._innocent_requests(),
            self._read("controls"),
            self._innocent.tokens(self._events),
            {(turn.user_id, turn.request_id): turn for turn in self._turns()},
            [(key_parts(key)[0], row) for store in self._stores() for key, row in store.scan(Table.CONVERSATIONS)],
            self._sim.torn,
        )
        if self._sim.milvus is not None:
            turns = {(turn.user_id, turn.request_id): turn for turn in self._turns()}
            wrong += wrong_versions(self._innocent_requests(), turns, self._sim.milvus)
        wrong += wrong_waits(self._read("waits"), self._read("requests"), self._events, self._sim.torn)
        if (rules := self._sim.conditions.approvals) is not None:
            audit, controls, calls = map(self._read, ("audit", "controls", "tool-calls"))
            wrong += wrong_approvals(audit, controls, calls, self._reasons(), rules)
        if self._askings is not None:
            wrong += self._askings.wrong(self._agents)
        wrong += self._wrong_programs()
        wrong += self._wrong_times()
        wrong += self._wrong_letters()
        wrong += self._wrong_rows(erasures)
        if self._sim.conditions.foreign:
            requests, torn = self._read("requests"), self._sim.torn
            wrong += wrong_foreign(self._sim.broker, requests, self._letters(), self._turns(), torn)
        if self._sim.conditions.user_limit is not None:
            wrong += wrong_limits(self._events, self._sim.conditions.user_limit)
        turns = {(turn.user_id, turn.request_id): turn for turn in self._turns()}
        wrong += wrong_results(self._innocent_requests(), self._events, turns, erasures)
        if self._sim.conditions.moderated:
            wrong += map(str, wrong_moderation(self._innocent.tokens(self._events), self._turn_entries()).items())
        stops = {"cancelled", "filtered"} if self._sim.masked or self._sim.conditions.moderated else {"cancelled"}
        steered = {key for key, plan in verdict.plans.items() if plan.steered is not None}
        ends = {key: reason for key, reason in self._reasons().items() if key in self._sim.endless - steered}
        wrong += [f"{key} was cancelled and ended as {reason}" for key, reason in ends.items() if reason not in stops]
        innocent = self._errors("engine_error") - self._quarantined
        wrong += [f"{key} is innocent and ended as engine_error" for key in innocent]
        wrong += [f"{key} names no model and ended as model_not_found" for key in self._errors("model_not_found")]
        return wrong

    def _results_of_asked(self) -> Mapping[Key, Mapping[str, Sequence[str]]]:
        if self._askings is not None:
            return self._askings.results(round(self._sim.conditions.within_s * 1000))
        rules = self._sim.conditions.approvals
        return NOBODY if rules is None else results_of(self._read("audit"), self._read("controls"))

    def _wrong_audit(self) -> list[str]:
        heads = self._read(changelog_topic(self._sim.settings(), Table.AUDIT))
        bad = None if self._sim.besieged else sum(self._is_bad(entry) for entry in self._read("requests"))
        return wrong_audit(self._read("audit"), heads, self._valid_requests(), bad)

    def _crashes(self) -> list[str]:
        crashes = [f"{process.name} broken by {error!r}" for process in self._sim.processes for error in process.broken]
        return crashes + [
            f"{process.name}: {context.get('message')} {context.get('exception')!r}"
            for process in self._sim.processes
            for context in process.loop.errors
        ]

    def _errors(self, code: str) -> set[Key]:
        events = [decode(TokenEvent, entry.value, entry.headers) for entry in self._innocent.tokens(self._events)]
        failed = [event for event in events if event.error is not None and event.error.code == code]
        return {(event.user_id or "", event.request_id or "") for event in failed}

    def _wrong_times(self) -> list[str]:
        """Turns that ended later, or long before, the broker had them."""
        wrong = []
        for entry in self._turn_entries():
            turn = decode(Turn, entry.value)
            if not -_WAITED_MS <= turn.created_at - entry.timestamp <= _CLOCKS_MS:
                wrong.append(f"{turn.request_id} ended {turn.created_at - entry.timestamp} ms after its record")
        return wrong

    def _wrong_programs(self) -> list[str]:
        sim = self._sim
        if sim.programs is None:
            return []
        asked: dict[Key, dict[str, Any]] = {}
        for entry in self._read("requests"):
            with suppress(ValueError, KeyError, TypeError):
                request = json.loads(entry.value or b"")
                if request.get("agent") in sim.conditions.programs:
                    asked.setdefault((request["user_id"], request["request_id"]), request)
        rule = ReaderRule(remember=1 << 60)
        for entry in self._events:
            rule.read(entry.partition, entry.offset, decode(TokenEvent, entry.value, entry.headers))
        topics = ProgramTopics(self._read("tool-calls"), self._read("tool-results"))
        changed = asked.keys() if sim.programs.has_changed else ()
        return wrong_programs(
            asked,
            rule.answers,
            topics,
            changed=changed,
            torn=sim.torn,
            prompt_of=lambda key, digest: sim.prompt_bytes.get((key, digest)),
            is_own=sim.programs.is_own,
        )

    def _ended_by_programs(self) -> set[tuple[str, int, int]]:
        """The places of requests whose answers a program ends; programs_verdict.py knows whether it may."""
        names = self._sim.conditions.programs
        found = (one for one in self._read("requests") if names and one.value is not None)
        return {
            (one.topic, one.partition, one.offset)
            for one in found
            if any(f'"{name}"'.encode() in one.value for name in names)
        }

    def _wrong_letters(self) -> list[str]:
        """Records without the one dead letter that they had to have, and letters that nothing had led to."""
        sources = {place: count for place, count in self._letters().items() if place[0] not in self._sim.broker.foreign}
        wanted = {
            (entry.topic, entry.partition, entry.offset) for entry in self._read("requests") if self._is_bad(entry)
        }
        wrong = [f"{place} has {count} dead letters" for place, count in sources.items() if count != 1]
        wrong += [f"{place} has no dead letter" for place in wanted - set(sources)]
        # Nobody reads a result while no answer waits, so a wrong one may have no dead letter yet.
        results = set() if self._sim.tools is None else self._sim.tools.wrong
        decisions = set() if self._sim.desks is None else self._sim.desks.wrong
        decisions |= set() if self._sim.askers is None else self._sim.askers.wrong
        unwanted = set(sources) - wanted - results - decisions - self._quarantined_places() - self._sim.hostile.keys()
        unwanted -= self._innocent.others(self._read("turns")) | self._ended_by_programs()
        return wrong + [f"{place} has a dead letter" for place in unwanted]

    def _letters(self) -> Counter[tuple[str, int, int]]:
        """How many dead letters each record has."""
        causes = [cause_from(letter.headers) for letter in self._read("dead-letters")]
        return Counter((cause.topic, cause.partition, cause.offset) for cause in causes if cause is not None)

    def _quarantined_places(self) -> set[tuple[str, int, int]]:
        places = set()
        for entry in self._read("requests"):
            with suppress(ValueError):
                request = json.loads(entry.value or b"")
                if (request["user_id"], request["request_id"]) in self._quarantined:
                    places.add((entry.topic, entry.partition, entry.offset))
        return places

    def _is_bad(self, entry: Entry) -> bool:
        try:
            self._request(entry)
        except WireError as error:
            return error.dead_letter
        return False

    def _innocent_requests(self) -> list[Entry]:
        return [entry for entry in self._read("requests") if not self._is_bad(entry)]

    def _valid_requests(self) -> set[Key]:
        found = set()
        for entry in self._read("requests"):
            with suppress(WireError):
                request = self._request(entry)
                found.add((request.user_id, request.request_id))
        return found

    def _request(self, entry: Entry) -> Request:
        request = decode(Request, entry.value, entry.headers)
        validate_request(request, entry.key, max_prompt_bytes=self._sim.settings().max_prompt_bytes)
        check_partition(request, entry.partition, self._sim.partitions)
        return request

    def _wrong_rows(self, erasures: Erasures) -> list[str]:
        """Rows of the simulated Milvus that are no turn's, of erased turns, or missing."""
        if self._sim.milvus is None:
            return []
        turns = [one for one in self._turns() if one.outlives(erasures.until(one.user_id, one.conversation_id))]
        wanted = {row.turn_id: row.text for turn in turns for row in rows_of(turn)}
        private = {row.turn_id: turn.private or () for turn in turns for row in rows_of(turn)}
        rows = self._sim.milvus.rows.items()
        there = {
            key: self._shown(row["user_id"], row["text"], private.get(key, ()))
            for key, row in rows
            if self._innocent.key((row["user_id"], ""))
        }
        wrong = [f"row {key} should not be there" for key in there.keys() - wanted.keys()]
        wrong += [f"row {key} is missing" for key in wanted.keys() - there.keys()]
        return wrong + [f"row {key} differs" for key in wanted.keys() & there.keys() if wanted[key] != there[key]]

    def _shown(self, user: str, text: str, private: Iterable[PrivateValue]) -> str:
        """An indexed text with the values put back, if none of those that its turn names is in it."""
        if not self._sim.masked:
            return text
        if self._mask(user, private).values_in([text]):
            return f"a private value in {text!r}"
        questions = [PrivateValue("PERSON", f"question {number}") for number in range(_QUESTIONS)]
        return self._mask(user, questions).put_back(text)

    def _wrong_usage(self, owners: list[tuple[Process, Partition]]) -> list[str]:
        windows = [decode(UsageWindow, entry.value) for entry in self._read("usage")]
        unpublished = [
            tally.requests
            for _, partition in owners
            for key, value in partition.ownership.store.scan(Table.USAGE)
            if key != PROGRESS and not (tally := msgspec.json.decode(value, type=Tally)).revision
        ]
        return wrong_usage(windows, self._read("turns"), sum(unpublished))

    def _erasures(self) -> Erasures:
        found = Marked(self._sim.partitions)
        found.read_controls(self._read("controls"))
        found.read_marks(self._read(changelog_topic(self._sim.settings(), Table.ERASED)))
        return Erasures(found.at, found.marked, self._asked_at(), self._conversations())

    def _conversations(self) -> dict[Key, tuple[str, str]]:
        """The conversation of each request."""
        found: dict[Key, tuple[str, str]] = {}
        for entry in self._read("requests"):
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                request = json.loads(entry.value or b"")
                user = request["user_id"]
                found.setdefault((user, request["request_id"]), (user, request.get("conversation_id") or "default"))
        return found

    def _asked_at(self) -> dict[Key, int]:
        asked: dict[Key, int] = {}
        for entry in self._read("requests"):
            key = (entry.key or b"").decode(errors="replace")
            with suppress(ValueError, KeyError, TypeError):
                request = json.loads(entry.value or b"")
                name = (key, request["request_id"])
                is_sent_now = name in self._timed and wakes_timer(entry, request, asked.get(name))
                asked[name] = entry.timestamp if is_sent_now else asked.get(name, entry.timestamp)
        return asked

    def _planned_at(self) -> dict[Key, int]:
        """The time of requests whose own timestamp is in the future: the one that their owner has recorded."""
        planned: dict[Key, int] = {}
        for entry in self._events:
            event = decode(TokenEvent, entry.value, entry.headers)
            details = event.notice.details if event.notice is not None and event.notice.code == PLAN else None
            if details and "at" in details:
                planned.setdefault((event.user_id or "", event.request_id or ""), int(details["at"]))
        return planned

    def _stores(self) -> list[PartitionStore]:
        return [
            partition.ownership.store
            for process in self._sim.alive
            for partition in process.worker.partitions.all.values()
            if partition.state is State.OWNED
        ]

    def _questions_behind_answers(self) -> dict[Key, set[str]]:
        """The requests whose questions stood in the prompts of what readers have of each answer."""
        rule = ReaderRule(remember=1 << 60)
        for entry in self._innocent.tokens(self._events):
            rule.read(entry.partition, entry.offset, decode(TokenEvent, entry.value, entry.headers))
        digests = {key: {one.prompt_digest or "" for one in answer.segments} for key, answer in rule.answers.items()}
        prompts = self._sim.prompts
        return {key: set().union(*(prompts[key].get(one, ()) for one in digests.get(key, ()))) for key in prompts}

    def _told_secrets(self, erasures: Erasures) -> list[str]:
        """Requests after an erasure of their user whose model has read what is older (big_erasure.py)."""
        asked = erasures.asked
        told = [key for key in self._sim.told_secrets if asked[key] > erasures.marked.get((key[0], None), asked[key])]
        return [f"{key} was asked after its user's erasure and has read what is older" for key in told]

    def _that_recall(self) -> set[Key]:
        """Requests whose prompts may have turns of other conversations."""
        requests = [json.loads(entry.value or b"") for entry in self._innocent_requests()]
        return {(one["user_id"], one["request_id"]) for one in requests if one.get("recall")}

    def _that_may_stop(self) -> set[Key]:
        """Requests with a deadline, and those that are cancelled."""
        requests = [json.loads(entry.value or b"") for entry in self._innocent_requests()]
        controls = [json.loads(entry.value or b"") for entry in self._read("controls")]
        found = [one for one in requests if "deadline_ms" in one] + [one for one in controls if "request_id" in one]
        return {(one["user_id"], one["request_id"]) for one in found}

    def _is_kept(self, key: Key) -> bool:
        """Whether the turn has any text."""
        return any((turn.user_id, turn.request_id) == key and turn.answer for turn in self._turns())

    def _turns(self) -> list[Turn]:
        return [decode(Turn, entry.value) for entry in self._turn_entries()]

    def _turn_entries(self) -> list[Entry]:
        return self._innocent.turns(self._read("turns"))

    def _reasons(self) -> dict[tuple[str, str], str]:
        turns = [json.loads(entry.value or b"") for entry in self._turn_entries()]
        return {(turn["user_id"], turn["request_id"]): turn["finish_reason"] for turn in turns}

    def _read(self, topic: str) -> list[Entry]:
        """What the topic holds but hostile records."""
        return [entry for entry in self._everything(topic) if self._innocent.entry(entry)]

    def _everything(self, topic: str) -> list[Entry]:
        return [
            entry for number in range(self._sim.partitions) for entry in self._visible(TopicPartition(topic, number))
        ]

    def _visible(self, at: TopicPartition) -> list[Entry]:
        log = self._sim.broker.log(at)
        return [entry for entry in (*log.expired, *log.entries) if entry.visible]
