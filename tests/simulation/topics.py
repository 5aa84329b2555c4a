"""What the topics hold when a run of the simulation is over, as records, requests and turns."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from aiokafka import TopicPartition

from app.wire.codec import decode
from app.wire.dead_letters import cause_from
from app.wire.error import WireError
from app.wire.event import PLAN, TokenEvent
from app.wire.request import Request
from app.wire.turn import Turn
from app.wire.validation import check_partition, validate_request
from tests.faults.records import Key
from tests.faults.verdict import wakes_timer
from tests.faults.waits_topic import timed_in
from tests.simulation.broker import Entry
from tests.simulation.hostile_verdict import Innocent, readable

if TYPE_CHECKING:
    from tests.simulation.scenario import Simulation


class Topics:
    """Of one run. Hostile records are in `everything` alone."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self.innocent = Innocent(simulation)

    @cached_property
    def _readable(self) -> tuple[list[Entry], list[str]]:
        return readable(self.everything("tokens"))

    @property
    def events(self) -> list[Entry]:
        return self._readable[0]

    @property
    def unreadable(self) -> list[str]:
        return self._readable[1]

    @cached_property
    def innocent_events(self) -> list[Entry]:
        return self.innocent.tokens(self.events)

    @cached_property
    def timed(self) -> frozenset[Key]:
        return timed_in(self.read("waits"))

    def letters(self) -> Counter[tuple[str, int, int]]:
        """How many dead letters each record has."""
        causes = [cause_from(letter.headers) for letter in self.read("dead-letters")]
        return Counter((cause.topic, cause.partition, cause.offset) for cause in causes if cause is not None)

    def is_bad(self, entry: Entry) -> bool:
        try:
            self.request(entry)
        except WireError as error:
            return error.dead_letter
        return False

    @cached_property
    def innocent_requests(self) -> list[Entry]:
        return [entry for entry in self.read("requests") if not self.is_bad(entry)]

    def valid_requests(self) -> set[Key]:
        found = set()
        for entry in self.read("requests"):
            with suppress(WireError):
                request = self.request(entry)
                found.add((request.user_id, request.request_id))
        return found

    def request(self, entry: Entry) -> Request:
        request = decode(Request, entry.value, entry.headers)
        validate_request(request, entry.key, max_prompt_bytes=self._sim.settings().max_prompt_bytes)
        check_partition(request, entry.partition, self._sim.partitions)
        return request

    def conversations(self) -> dict[Key, tuple[str, str]]:
        """The conversation of each request."""
        found: dict[Key, tuple[str, str]] = {}
        for entry in self.read("requests"):
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                request = json.loads(entry.value or b"")
                user = request["user_id"]
                found.setdefault((user, request["request_id"]), (user, request.get("conversation_id") or "default"))
        return found

    def asked_at(self) -> dict[Key, int]:
        asked: dict[Key, int] = {}
        for entry in self.read("requests"):
            key = (entry.key or b"").decode(errors="replace")
            with suppress(ValueError, KeyError, TypeError):
                request = json.loads(entry.value or b"")
                name = (key, request["request_id"])
                is_sent_now = name in self.timed and wakes_timer(entry, request, asked.get(name))
                asked[name] = entry.timestamp if is_sent_now else asked.get(name, entry.timestamp)
        return asked

    def planned_at(self) -> dict[Key, int]:
        """The time of requests whose own timestamp is in the future: the one that their owner has recorded."""
        planned: dict[Key, int] = {}
        for entry in self.events:
            event = decode(TokenEvent, entry.value, entry.headers)
            details = event.notice.details if event.notice is not None and event.notice.code == PLAN else None
            if details and "at" in details:
                planned.setdefault((event.user_id or "", event.request_id or ""), int(details["at"]))
        return planned

    def errors(self, code: str) -> set[Key]:
        events = [decode(TokenEvent, entry.value, entry.headers) for entry in self.innocent_events]
        failed = [event for event in events if event.error is not None and event.error.code == code]
        return {(event.user_id or "", event.request_id or "") for event in failed}

    def that_recall(self) -> set[Key]:
        """Requests whose prompts may have turns of other conversations."""
        requests = [json.loads(entry.value or b"") for entry in self.innocent_requests]
        return {(one["user_id"], one["request_id"]) for one in requests if one.get("recall")}

    def that_may_stop(self) -> set[Key]:
        """Requests with a deadline, and those that are cancelled."""
        requests = [json.loads(entry.value or b"") for entry in self.innocent_requests]
        controls = [json.loads(entry.value or b"") for entry in self.read("controls")]
        found = [one for one in requests if "deadline_ms" in one] + [one for one in controls if "request_id" in one]
        return {(one["user_id"], one["request_id"]) for one in found}

    def is_kept(self, key: Key) -> bool:
        """Whether the turn has any text."""
        return any((turn.user_id, turn.request_id) == key and turn.answer for turn in self.turns())

    def turns(self) -> list[Turn]:
        return [decode(Turn, entry.value) for entry in self.turn_entries()]

    def turn_entries(self) -> list[Entry]:
        return self.innocent.turns(self.read("turns"))

    def reasons(self) -> dict[tuple[str, str], str]:
        turns = [json.loads(entry.value or b"") for entry in self.turn_entries()]
        return {(turn["user_id"], turn["request_id"]): turn["finish_reason"] for turn in turns}

    def read(self, topic: str) -> list[Entry]:
        """What the topic holds but hostile records."""
        return [entry for entry in self.everything(topic) if self.innocent.entry(entry)]

    def everything(self, topic: str) -> list[Entry]:
        return [
            entry for number in range(self._sim.partitions) for entry in self.visible(TopicPartition(topic, number))
        ]

    def visible(self, at: TopicPartition) -> list[Entry]:
        log = self._sim.broker.log(at)
        return [entry for entry in (*log.expired, *log.entries) if entry.visible]
