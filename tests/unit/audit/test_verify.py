"""That no change of a chain stays hidden: 100 chains, each changed in every way."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from app.audit.verify import Chain
from app.delivery.commits.audit_chain import extend, hash_of
from app.settings import Settings
from app.wire.audit import AuditAction, AuditRecord
from tables.records import AuditHead, decode_row

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
        head = decode_row(row.value or b"", AuditHead)
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


def checked(chain: list[Link], before: AuditHead, after: list[AuditHead]) -> list[str]:
    """The findings if these are the heads before and after the topic was read."""
    found = Chain(0)
    found.expect([before])
    for offset, (key, value) in enumerate(chain):
        found.add(offset, key, value)
    found.confirm(after)
    return [str(finding) for finding in found.end()]


def forged(chain: list[Link], head: AuditHead) -> Link:
    record = AuditRecord(action=AuditAction.ADMIN, outcome="erase nina", user_id="boss", at=9)
    _, (output,) = extend(head, [record], SETTINGS)
    return output.key or b"", output.value or b""


def test_a_record_behind_the_head_was_not_written_by_a_worker() -> None:
    chain, head = links(7)
    assert checked(chain, head, [head]) == []
    number = head.sequence + 1
    (found,) = checked([*chain, forged(chain, head)], head, [head])
    assert found == f"partition 0, end: records {number} to {number} were added: no worker wrote them"
    assert checked([*chain, forged(chain, head)], AuditHead(), [AuditHead()]), "without a head all of them were"


def test_a_forged_record_is_found_when_the_true_one_comes() -> None:
    chain, head = links(8)
    record = AuditRecord(action=AuditAction.REQUEST, outcome="stop", user_id="u1", at=9)
    (row,), (true,) = extend(head, [record], SETTINGS)
    newest = decode_row(row.value or b"", AuditHead)
    false = forged(chain, head)
    for more in ([false], [false, (true.key or b"", true.value or b"")]):
        assert any("was changed" in what for what in checked([*chain, *more], head, [head, newest]))


def test_records_that_are_committed_while_the_topic_is_read_are_no_fault() -> None:
    chain, newest = links(9)
    before = AuditHead(2, hash_of(chain[2][1]))
    for read in range(3, len(chain) + 1):
        assert checked(chain[:read], before, [before, newest]) == []


def test_a_chain_that_was_quiet_for_longer_than_the_retention_is_complete_and_can_be_sealed() -> None:
    _, head = links(10)
    for written_at, is_complete in ((999, True), (1000, False), (None, False)):
        quiet = Chain(3, kept_since=1000)
        quiet.expect([head], written_at)
        quiet.confirm([head])
        assert (quiet.end() == []) == is_complete
        assert quiet.has_left == is_complete
        assert quiet.confirmed == head
    cut = Chain(3, kept_since=1000)
    cut.expect([head], 999)
    chain, _ = links(10)
    cut.add(0, *chain[0])
    assert "the end was cut" in str(cut.end()[0]), "older records leave before younger ones"


def test_a_seal_has_heads_alone_that_a_worker_wrote() -> None:
    chain, newest = links(11)
    before = AuditHead(1, hash_of(chain[1][1]))
    found = Chain(0)
    found.expect([before])
    for offset, (key, value) in enumerate(chain[:4]):
        found.add(offset, key, value)
    found.confirm([newest])
    assert (found.end(), found.confirmed) == ([], before)
    assert Chain(0).confirmed == AuditHead()
