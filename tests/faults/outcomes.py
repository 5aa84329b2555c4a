"""What faults leave behind beside answers: error events, dead letters, rows in Milvus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from tests.faults.records import Fetched, Key

Place = tuple[str, int, int]
"""Topic with its prefix, partition, offset."""


def wrong_errors(due: Mapping[str, int], seen: Mapping[str, int]) -> list[Key]:
    """One for each error event that was not due, and each due one that is missing."""
    due, seen = Counter(due), Counter(seen)
    codes = [*(seen - due).elements(), *(due - seen).elements()]
    return [(code, f"{seen[code]} seen, {due[code]} due") for code in codes]


def wrong_letters(due: set[Place], letters: Iterable[Fetched], optional: Collection[Place] = ()) -> list[Key]:
    """Records that are no dead letter and had to be, or are one twice, or are one and should not.

    Those in `optional` may be one.
    """
    found = Counter(_source(letter) for letter in letters)
    wrong = [
        place
        for place in due | found.keys()
        if found[place] != (place in due) and not (place in optional and found[place] == 1)
    ]
    return [
        (f"{topic}/{partition}/{offset}", f"{found[topic, partition, offset]} dead letters")
        for topic, partition, offset in sorted(wrong)
    ]


def _source(letter: Fetched) -> Place:
    headers = dict(letter.headers)
    topic, partition, offset = (headers[f"source-{name}"].decode() for name in ("topic", "partition", "offset"))
    return topic, int(partition), int(offset)
