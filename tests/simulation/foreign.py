"""Topics of others in virtual time: what programs send there, and whether each record has its one outcome."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from aiokafka import TopicPartition

from app.foreign.source import source_of
from app.policy.foreign import EgressRules, IntakeRules
from app.wire.codec import decode
from app.wire.event import EventType, TokenEvent
from app.wire.ids import partition_for
from app.wire.turn import Turn
from tests.foreign_reader import read
from tests.simulation.broker import Broker, Entry

ASKS, PINGS, ANSWERS, PONGS, WORDS = "asks", "pings", "answers", "pongs", "words"
REPORTS, FAILURES = "reports", "failures"
PARTITIONS = {ASKS: 3, PINGS: 1, ANSWERS: 2, PONGS: 1, WORDS: 2, REPORTS: 2, FAILURES: 1}
INTAKE = (
    IntakeRules(
        topic=ASKS,
        fields={
            "request_id": "id",
            "user_id": "user.name",
            "prompt": "text",
            "max_tokens": "length",
            "deadline_ms": "late",
        },
    ),
    IntakeRules(topic=PINGS, fields={"prompt": "text"}, user_id="pinger", constants={"max_tokens": 2}),
)
EGRESS = (
    EgressRules(topic=ANSWERS, fields={"id": "request_id", "who": "user_id", "said": "answer"}),
    EgressRules(topic=PONGS, intake=PINGS, fields={"id": "request_id", "said": "answer"}),
    EgressRules(
        topic=REPORTS,
        intake=ASKS,
        on=("done", "error"),
        fields={
            "id": "request_id",
            "who": "user_name",
            "said": "answer",
            "error": "error.code",
            "sent": "source.sent",
        },
    ),
    EgressRules(topic=FAILURES, on=("error",), fields={"id": "request_id", "who": "user_id", "why": "error.code"}),
    EgressRules(
        topic=WORDS,
        per="token",
        fields={
            "id": "request_id",
            "who": "user_id",
            "index": "index",
            "tokens": "tokens",
            "text": "text",
            "epoch": "epoch",
            "finish_reason": "finish_reason",
            "error": "error.code",
        },
    ),
)
_GARBAGE = (b"{not json", b"[]", b"", b'{"text": "of nobody"}', b'{"user": {"name": "user-0"}}', b'{"text": 7}')


def send(broker: Broker, chance: random.Random, request: Mapping[str, object]) -> None:
    """Send the request as others would: without a key or with one of theirs, to any partition."""
    if chance.random() < 0.3:
        at, record = TopicPartition(PINGS, 0), {"text": request["prompt"]}
    else:
        at = TopicPartition(ASKS, chance.randrange(PARTITIONS[ASKS]))
        fields = {"id": request["request_id"], "user": {"name": request["user_id"]}, "text": request["prompt"]}
        sent = len(_visible(broker, ASKS))
        record = {**fields, "length": request["max_tokens"], "theirs": [1, 2], "sent": sent} | (
            {"late": 0} if sent % 6 == 5 else {}
        )
    broker.append(at, chance.choice((None, b"\xff", b"their key")), json.dumps(record).encode())


def send_garbage(broker: Broker, chance: random.Random) -> None:
    topic = chance.choice((ASKS, PINGS))
    value = chance.choice(_GARBAGE[:3] if topic == PINGS else _GARBAGE)
    broker.append(TopicPartition(topic, chance.randrange(PARTITIONS[topic])), None, value)


def is_taken(broker: Broker) -> bool:
    """Whether each foreign record has led to a record of Parley's."""
    made = sum(source_of(entry.headers) is not None for entry in _visible(broker, "requests"))
    letters = sum(
        dict(entry.headers)["source-topic"].decode() in PARTITIONS for entry in _visible(broker, "dead-letters")
    )
    return made + letters >= sum(len(_visible(broker, topic)) for topic in (ASKS, PINGS))


def wrong_foreign(
    broker: Broker,
    requests: Iterable[Entry],
    letters: Mapping[tuple[str, int, int], int],
    turns: Sequence[Turn],
    torn: AbstractSet[tuple[str, str]],
) -> list[str]:
    """What is wrong between foreign records, requests, turns and the records of readers of foreign topics.

    torn: Requests whose events Kafka has lost, by user and id: whether they have failed is not known any more.
    """
    made: Counter[tuple[str, int, int]] = Counter()
    times: dict[tuple[str, int, int], int] = {}
    pinged = set()
    wrong = []
    for entry in requests:
        if (source := source_of(entry.headers)) is None:
            continue
        made[source.topic, source.partition, source.offset] += 1
        request = json.loads(entry.value or b"")
        if source.topic == PINGS:
            pinged.add(request["request_id"])
        partitions = len({at.partition for at in broker.logs if at.topic == "requests"})
        times[source.topic, source.partition, source.offset] = entry.timestamp
        if entry.key != request["user_id"].encode() or partition_for(request["user_id"], partitions) != entry.partition:
            wrong.append(f"the request of {source} is not where its user is")
    for topic in (ASKS, PINGS):
        for entry in _visible(broker, topic):
            place = (topic, entry.partition, entry.offset)
            if times.get(place, entry.timestamp) != entry.timestamp:
                wrong.append(f"the request of {place} is not of its time")
            if made[place] + letters.get(place, 0) != 1:
                wrong.append(f"{place} has {made[place]} requests and {letters.get(place, 0)} dead letters")
    wrong += _wrong_egress(broker, ANSWERS, [{"id": t.request_id, "who": t.user_id, "said": t.answer} for t in turns])
    told = [{"id": t.request_id, "said": t.answer} for t in turns if t.user_id == "pinger" and t.request_id in pinged]
    wrong += _wrong_reports(broker, letters, turns) + _wrong_failures(broker, letters, turns, torn)
    return wrong + _wrong_egress(broker, PONGS, told) + _wrong_words(broker, turns)


def _wrong_reports(broker: Broker, letters: Mapping[tuple[str, int, int], int], turns: Sequence[Turn]) -> list[str]:
    """Each record of an intake leaves one record of how it ended, with what its sender wrote beside it. Of several with
    one id, the first counts, as for requests.
    """
    answers = {(turn.user_id, turn.request_id): turn.answer for turn in turns}
    erased = {(turn.user_id, turn.request_id) for turn in turns if not turn.prompt}
    wanted: dict[object, tuple[str | None, list[int | None]]] = {}
    for entry in _visible(broker, ASKS):
        place = f"{ASKS}-{entry.partition}-{entry.offset}"
        if letters.get((ASKS, entry.partition, entry.offset)):
            wanted[place] = None, [None]
            continue
        asked = json.loads(entry.value or b"")
        key = (asked["user"]["name"], asked["id"])
        wanted.setdefault(key, (answers.get(key), []))[1].append(asked["sent"])
    told: Counter[object] = Counter()
    wrong = []
    for entry in _visible(broker, REPORTS):
        one = json.loads(entry.value or b"")
        places = (one["id"], (entry.key or b"").decode())
        key = next((place for place in places if place in wanted), (one["who"], one["id"]))
        told[key] += 1
        answer, sent = wanted.get(key, ("nobody asked", []))
        may_tell = [] if key in erased else sent
        may_hide = [None] if answer is None or key in erased else []  # a request of an erased user may fail, too
        is_right = (one["said"], one["error"] is None) == (answer, answer is not None)
        if not is_right or one["sent"] not in [*may_tell, *may_hide]:
            wrong.append(f"{one} on {REPORTS} is not how {key} has ended")
    return wrong + [f"{key} has {told[key]} records on {REPORTS}" for key in wanted if told[key] != 1]


def _wrong_failures(
    broker: Broker,
    letters: Mapping[tuple[str, int, int], int],
    turns: Iterable[Turn],
    torn: AbstractSet[tuple[str, str]],
) -> list[str]:
    """Each request that has failed leaves one record, whoever sent it and however early it was refused, and so does
    each record that an intake refuses.
    """
    events = [decode(TokenEvent, entry.value, entry.headers) for entry in _visible(broker, "tokens")]
    failed = {(one.user_id, one.request_id) for one in events if one.type is EventType.ERROR}
    failed -= {(turn.user_id, turn.request_id) for turn in turns}  # by an owner that was fenced
    told = Counter((one["who"], one["id"]) for one in (json.loads(e.value or b"") for e in _visible(broker, FAILURES)))
    wrong = [f"{key} has {told[key]} records on {FAILURES}" for key in failed if told[key] != 1]
    wrong += [f"{key} has {told[key]} records on {FAILURES}" for key in torn - failed if told[key] > 1]
    refused = sum(count for (topic, _, _), count in letters.items() if topic in {ASKS, PINGS})
    left = sum(count for key, count in told.items() if key not in failed | torn)
    return wrong + ([] if left == refused else [f"{left} records on {FAILURES} are of {refused} that were refused"])


def _wrong_words(broker: Broker, turns: Iterable[Turn]) -> list[str]:
    """Readers of one record a token have each answer whole, and its end. A turn may have no text where they have."""
    records = [json.loads(entry.value or b"") for entry in _visible(broker, WORDS)]
    answers = read({**one, "id": (one["who"], one["id"])} for one in records)
    wrong = []
    for turn in turns:
        key = (turn.user_id, turn.request_id)
        answer = answers.get(key)
        if (
            answer is None
            or answer.end != turn.finish_reason
            or answer.gaps
            or answer.text != (turn.answer or answer.text)
        ):
            wrong.append(f"{key} is not on {WORDS} as it ended")
    return wrong


def _wrong_egress(broker: Broker, topic: str, wanted: Iterable[Mapping[str, str]]) -> list[str]:
    found = Counter(json.dumps(json.loads(entry.value or b"")) for entry in _visible(broker, topic))
    missing = Counter(map(json.dumps, wanted))
    lost = [f"{record} is not on {topic}" for record in missing - found]
    return lost + [f"{record} is once too often on {topic}" for record in found - missing]


def _visible(broker: Broker, topic: str) -> list[Entry]:
    logs = [log for at, log in broker.logs.items() if at.topic == topic]
    return [entry for log in logs for entry in (*log.expired, *log.entries) if entry.visible]
