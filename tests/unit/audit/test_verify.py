"""That no change of a chain stays hidden: 100 chains, each changed in every way."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from app.audit.verify import Chain
from app.delivery.commits.audit_chain import extend, hash_of
from app.settings import Settings
from app.wire import AuditAction, AuditRecord
from tables.records import AuditHead, decode

Link = tuple[bytes, bytes]
SETTINGS = Settings(_env_file=None)


def links(seed: int, wire_format: str = "json") -> tuple[list[Link], AuditHead]:
    """Keys and values of a chain that grew in groups, and its head."""
    chance, head, found = random.Random(seed), AuditHead(), []
    settings = SETTINGS.model_copy(update={"wire_format": wire_format})
    for group in range(chance.randint(2, 6)):
        records = [
            AuditRecord(action=AuditAction.REQUEST, outcome="stop", user_id=f"u{chance.randint(0, 3)}", at=group)
            for _ in range(chance.randint(1, 4))
        ]
        (row,), outputs = extend(head, records, settings)
        head = decode(row.value or b"", AuditHead)
        found += [(output.key or b"", output.value or b"") for output in outputs]
    return found, head


def findings(chain: list[Link], head: AuditHead | None = None) -> list[str]:
    checked = Chain(0)
    checked.expect([] if head is None else [head])
    for offset, (key, value) in enumerate(chain):
        checked.add(offset, key, value)
    return [str(finding) for finding in checked.end()]


def one_bit_changed(value: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(8 * len(value))
    return bytes(byte ^ (1 << place % 8) if at == place // 8 else byte for at, byte in enumerate(value))


def changed(chain: list[Link], seed: int) -> Iterator[tuple[str, list[Link]]]:
    chance = random.Random(seed)
    at = chance.randrange(len(chain))
    key, value = chain[at]
    yield "a bit", [*chain[:at], (key, one_bit_changed(value, chance)), *chain[at + 1 :]]
    yield "a record", [*chain[:at], *chain[at + 1 :]] if at else chain[:-1]
    yield "the tail", chain[: chance.randrange(1, len(chain))]
    yield "two records", [*chain[:-2], chain[-1], chain[-2]]
    yield "a repeated record", [*chain[: at + 1], *chain[at:]]
    yield "another user's key", [*chain[:at], (key + b"x", value), *chain[at + 1 :]]


@pytest.mark.parametrize("seed", range(100))
def test_a_chain_that_was_changed_is_found(seed: int) -> None:
    chain, head = links(seed)
    assert findings(chain, head) == []
    for what, other in changed(chain, seed):
        assert findings(other, head), f"{what} was changed in chain {seed}"


def test_without_a_head_only_the_last_record_is_not_protected() -> None:
    chain, _ = links(3)
    for at, (key, value) in enumerate(chain):
        other = [*chain[:at], (key, value.replace(b"stop", b"gone")), *chain[at + 1 :]]
        assert bool(findings(other)) == (at < len(chain) - 1)


def test_a_chain_whose_beginning_has_left_is_complete() -> None:
    chain, head = links(4)
    old = AuditHead(1, hash_of(chain[1][1]))
    checked = Chain(0)
    checked.expect([head, old])
    for offset, (key, value) in enumerate(chain[3:], 3):
        checked.add(offset, key, value)
    assert (checked.end(), checked.first) == ([], 3)


def test_a_finding_says_where_and_what() -> None:
    chain, head = links(5)
    assert findings([*chain[:1], *chain[3:]], head) == ["partition 0, offset 1: records 1 to 2 are missing"]
    assert findings(chain[:2], head) == [f"partition 0, end: the end was cut: records 2 to {head.sequence} are missing"]
    assert "not an audit record" in findings([(b"k", b"{not json")])[0]


def test_two_heads_of_one_record_that_differ_are_found() -> None:
    chain, head = links(6)
    checked = Chain(0)
    checked.expect([head, AuditHead(head.sequence, "0" * 64)])
    for offset, (key, value) in enumerate(chain):
        checked.add(offset, key, value)
    assert any("two heads" in str(finding) for finding in checked.end())
