"""What a run of the simulation leaves behind, judged from outside: by the topics, the tables and the rows in Milvus."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
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
from app.wire.event import TokenEvent
from app.wire.ids import partition_for
from app.wire.turn import Turn
from app.wire.usage import UsageWindow
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
from tests.faults.records import Key
from tests.faults.tool_verdict import NOBODY, read_tool_topics
from tests.faults.verdict import Verdict, judge_records
from tests.faults.waits_topic import begun_early, slept_by, wrong_waits
from tests.simulation.erasures import Erasures, Marked
from tests.simulation.foreign import wrong_foreign
from tests.simulation.forks import wrong_forks
from tests.simulation.hostile_verdict import met_by_kills, wrong_outcomes
from tests.simulation.limits import wrong_limits
from tests.simulation.pardons import Pardons
from tests.simulation.process import Process
from tests.simulation.results import wrong_results
from tests.simulation.topics import Topics
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
        self.topics = Topics(simulation)
        rules = simulation.conditions.agents
        self._agents = {} if rules is None else {"helper": rules}

    @cached_property
    def _askings(self) -> Askings | None:
        repeats = () if self._sim.askers is None else self._sim.askers.repeats
        return Askings(self.topics.read("requests"), self.topics.events, repeats) if self._agents else None

    @cached_property
    def _quarantined(self) -> set[Key]:
        return self._sim.deadly | met_by_kills(self._sim, self.topics.events)

    def outcome(self) -> Outcome:
        topics = self.topics
        erasures = self._erasures()
        verdict = judge_records(
            topics.read("requests"),
            topics.events,
            topics.innocent.turns(topics.read("turns")),
            self._sim.settings(),
            paced=True,
            mixed=self._sim.conditions.mixed,
            erased=erasures.stood_at,
            has_met=erasures.has_met,
            masks=self._mask,
            slept=slept_by(topics.read("waits")),
            timed=topics.timed,
            agents=self._agents,
            programs=self._sim.conditions.programs,
            topics=read_tool_topics(
                topics.read("tool-calls"),
                topics.read("tool-results"),
                self._sim.settings(),
                self._results_of_asked(),
            ),
        )
        planned = topics.planned_at()
        sent = {key: min(at, planned.get(key, at)) for key, at in erasures.asked.items()}
        Pardons(self._sim, topics, erasures, sent).apply(verdict)
        wrong = [*topics.unreadable, *self._wrong(erasures, verdict)]
        wrong += erasures.kept(topics.turns(), self._stores())
        wrong += erasures.wrong_for_sinks(topics.read("erasures"))
        wrong += erasures.quoted(verdict.plans, verdict.ever_recalled, sent)
        for (key, digest), at in self._sim.read_at.items():
            # An owner that died before its first token has left no time of a request whose producer's clock is ahead.
            wrong += erasures.read({key: self._sim.prompts[key][digest]}, {key: min(sent.get(key, at), at)})
        wrong += erasures.quoting(topics.turns(), self._questions_behind_answers)
        wrong += self._told_secrets(erasures)
        return Outcome(verdict, self._sim.world.steps, wrong, self._crashes())

    def _mask(self, user: str, values: Iterable[PrivateValue]) -> Mask:
        topic = changelog_topic(self._sim.settings(), Table.GUARD)
        at = TopicPartition(topic, partition_for(user, self._sim.partitions))
        secrets = [decode_row(entry.value or b"", GuardSecret).secret for entry in self.topics.visible(at)]
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
                rows: dict[bytes | None, bytes | None] = {entry.key: entry.value for entry in self.topics.visible(at)}
                kept = {key: value for key, value in rows.items() if value is not None}
                if dict(partition.ownership.store.scan(table)) != kept:
                    wrong.append(f"{process.name}: {table.value} of {partition.number} differs from its changelog")
        return wrong

    def _wrong(self, erasures: Erasures, verdict: Verdict) -> list[str]:
        topics = self.topics
        turns = {(turn.user_id, turn.request_id): turn for turn in topics.turns()}
        wrong = wrong_outcomes(self._sim, topics.events, topics.read("turns"), topics.letters())
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
        wrong += begun_early(topics.read("requests"), topics.events)
        wrong += wrong_order(
            topics.read("requests"),
            topics.events,
            turns,
            [row for store in self._stores() for _, row in store.scan(Table.CONVERSATIONS)],
            self._questions_behind_answers,
            topics.timed,
            self._sim.torn,
        )
        wrong += wrong_forks(
            topics.innocent_requests,
            topics.read("controls"),
            topics.innocent_events,
            turns,
            [(key_parts(key)[0], row) for store in self._stores() for key, row in store.scan(Table.CONVERSATIONS)],
            self._sim.torn,
        )
        if self._sim.milvus is not None:
            wrong += wrong_versions(topics.innocent_requests, turns, self._sim.milvus)
        wrong += wrong_waits(topics.read("waits"), topics.read("requests"), topics.events, self._sim.torn)
        if (rules := self._sim.conditions.approvals) is not None:
            audit, controls, calls = map(topics.read, ("audit", "controls", "tool-calls"))
            wrong += wrong_approvals(audit, controls, calls, topics.reasons(), rules)
        if self._askings is not None:
            wrong += self._askings.wrong(self._agents)
        wrong += self._wrong_programs()
        wrong += self._wrong_times()
        wrong += self._wrong_letters()
        wrong += self._wrong_rows(erasures)
        if self._sim.conditions.foreign:
            requests, torn = topics.read("requests"), self._sim.torn
            wrong += wrong_foreign(self._sim.broker, requests, topics.letters(), topics.turns(), torn)
        if self._sim.conditions.user_limit is not None:
            wrong += wrong_limits(topics.events, self._sim.conditions.user_limit)
        wrong += wrong_results(topics.innocent_requests, topics.events, turns, erasures)
        if self._sim.conditions.moderated:
            tokens = topics.innocent_events
            wrong += map(str, wrong_moderation(tokens, topics.turn_entries()).items())
        stops = {"cancelled", "filtered"} if self._sim.masked or self._sim.conditions.moderated else {"cancelled"}
        steered = {key for key, plan in verdict.plans.items() if plan.steered is not None}
        ends = {key: reason for key, reason in topics.reasons().items() if key in self._sim.endless - steered}
        wrong += [f"{key} was cancelled and ended as {reason}" for key, reason in ends.items() if reason not in stops]
        innocent = topics.errors("engine_error") - self._quarantined
        wrong += [f"{key} is innocent and ended as engine_error" for key in innocent]
        wrong += [f"{key} names no model and ended as model_not_found" for key in topics.errors("model_not_found")]
        return wrong

    def _results_of_asked(self) -> Mapping[Key, Mapping[str, Sequence[str]]]:
        if self._askings is not None:
            return self._askings.results(round(self._sim.conditions.within_s * 1000))
        rules = self._sim.conditions.approvals
        return NOBODY if rules is None else results_of(self.topics.read("audit"), self.topics.read("controls"))

    def _wrong_audit(self) -> list[str]:
        heads = self.topics.read(changelog_topic(self._sim.settings(), Table.AUDIT))
        bad = None if self._sim.besieged else sum(self.topics.is_bad(entry) for entry in self.topics.read("requests"))
        return wrong_audit(self.topics.read("audit"), heads, self.topics.valid_requests(), bad)

    def _crashes(self) -> list[str]:
        crashes = [f"{process.name} broken by {error!r}" for process in self._sim.processes for error in process.broken]
        return crashes + [
            f"{process.name}: {context.get('message')} {context.get('exception')!r}"
            for process in self._sim.processes
            for context in process.loop.errors
        ]

    def _wrong_times(self) -> list[str]:
        """Turns that ended later, or long before, the broker had them."""
        wrong = []
        for entry in self.topics.turn_entries():
            turn = decode(Turn, entry.value)
            if not -_WAITED_MS <= turn.created_at - entry.timestamp <= _CLOCKS_MS:
                wrong.append(f"{turn.request_id} ended {turn.created_at - entry.timestamp} ms after its record")
        return wrong

    def _wrong_programs(self) -> list[str]:
        sim = self._sim
        if sim.programs is None:
            return []
        asked: dict[Key, dict[str, Any]] = {}
        for entry in self.topics.read("requests"):
            with suppress(ValueError, KeyError, TypeError):
                request = json.loads(entry.value or b"")
                if request.get("agent") in sim.conditions.programs:
                    asked.setdefault((request["user_id"], request["request_id"]), request)
        rule = ReaderRule(remember=1 << 60)
        for entry in self.topics.events:
            rule.read(entry.partition, entry.offset, decode(TokenEvent, entry.value, entry.headers))
        topics = ProgramTopics(self.topics.read("tool-calls"), self.topics.read("tool-results"))
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
        found = (one for one in self.topics.read("requests") if names and one.value is not None)
        return {
            (one.topic, one.partition, one.offset)
            for one in found
            if any(f'"{name}"'.encode() in one.value for name in names)
        }

    def _wrong_letters(self) -> list[str]:
        """Records without the one dead letter that they had to have, and letters that nothing had led to."""
        topics = self.topics
        sources = {
            place: count for place, count in topics.letters().items() if place[0] not in self._sim.broker.foreign
        }
        wanted = {
            (entry.topic, entry.partition, entry.offset) for entry in topics.read("requests") if topics.is_bad(entry)
        }
        wrong = [f"{place} has {count} dead letters" for place, count in sources.items() if count != 1]
        wrong += [f"{place} has no dead letter" for place in wanted - set(sources)]
        # Nobody reads a result while no answer waits, so a wrong one may have no dead letter yet.
        results = set() if self._sim.tools is None else self._sim.tools.wrong
        decisions = set() if self._sim.desks is None else self._sim.desks.wrong
        decisions |= set() if self._sim.askers is None else self._sim.askers.wrong
        unwanted = set(sources) - wanted - results - decisions - self._quarantined_places() - self._sim.hostile.keys()
        unwanted -= topics.innocent.others(topics.read("turns")) | self._ended_by_programs()
        return wrong + [f"{place} has a dead letter" for place in unwanted]

    def _quarantined_places(self) -> set[tuple[str, int, int]]:
        places = set()
        for entry in self.topics.read("requests"):
            with suppress(ValueError):
                request = json.loads(entry.value or b"")
                if (request["user_id"], request["request_id"]) in self._quarantined:
                    places.add((entry.topic, entry.partition, entry.offset))
        return places

    def _wrong_rows(self, erasures: Erasures) -> list[str]:
        """Rows of the simulated Milvus that are no turn's, of erased turns, or missing."""
        if self._sim.milvus is None:
            return []
        turns = [one for one in self.topics.turns() if one.outlives(erasures.until(one.user_id, one.conversation_id))]
        wanted = {row.turn_id: row.text for turn in turns for row in rows_of(turn)}
        private = {row.turn_id: turn.private or () for turn in turns for row in rows_of(turn)}
        rows = self._sim.milvus.rows.items()
        there = {
            key: self._shown(row["user_id"], row["text"], private.get(key, ()))
            for key, row in rows
            if self.topics.innocent.key((row["user_id"], ""))
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
        windows = [decode(UsageWindow, entry.value) for entry in self.topics.read("usage")]
        unpublished = [
            tally.requests
            for _, partition in owners
            for key, value in partition.ownership.store.scan(Table.USAGE)
            if key != PROGRESS and not (tally := msgspec.json.decode(value, type=Tally)).revision
        ]
        return wrong_usage(windows, self.topics.read("turns"), sum(unpublished))

    def _erasures(self) -> Erasures:
        found = Marked(self._sim.partitions)
        found.read_controls(self.topics.read("controls"))
        found.read_marks(self.topics.read(changelog_topic(self._sim.settings(), Table.ERASED)))
        return Erasures(found.at, found.marked, self.topics.asked_at(), self.topics.conversations())

    def _stores(self) -> list[PartitionStore]:
        return [
            partition.ownership.store
            for process in self._sim.alive
            for partition in process.worker.partitions.all.values()
            if partition.state is State.OWNED
        ]

    @cached_property
    def _questions_behind_answers(self) -> dict[Key, set[str]]:
        """The requests whose questions stood in the prompts of what readers have of each answer."""
        rule = ReaderRule(remember=1 << 60)
        for entry in self.topics.innocent_events:
            rule.read(entry.partition, entry.offset, decode(TokenEvent, entry.value, entry.headers))
        digests = {key: {one.prompt_digest or "" for one in answer.segments} for key, answer in rule.answers.items()}
        prompts = self._sim.prompts
        return {key: set().union(*(prompts[key].get(one, ()) for one in digests.get(key, ()))) for key in prompts}

    def _told_secrets(self, erasures: Erasures) -> list[str]:
        """Requests after an erasure of their user whose model has read what is older (big_erasure.py)."""
        asked = erasures.asked
        told = [key for key in self._sim.told_secrets if asked[key] > erasures.marked.get((key[0], None), asked[key])]
        return [f"{key} was asked after its user's erasure and has read what is older" for key in told]
