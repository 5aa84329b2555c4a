"""What is wrong with `audit`: broken chains, and requests that do not have exactly one record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from app.audit.verify import Chain
from app.wire.audit import AuditAction, AuditRecord
from app.wire.codec import decode
from tables.records import AuditHead, decode_row

if TYPE_CHECKING:
    from tests.faults.records import Fetched, Key


def wrong_audit(
    records: Iterable[Fetched], heads: Iterable[Fetched], asked: Collection[Key], bad: int | None = None
) -> list[str]:
    """`records` of `audit` and `heads` of its table's changelog, in offset order of each partition.

    `asked` are the valid requests, all of which have ended; `bad` is the number of bad records, if it is known.
    """
    chains: dict[int, Chain] = {}
    expected: defaultdict[int, list[AuditHead]] = defaultdict(list)
    ended: Counter[Key] = Counter()
    refused: Counter[Key] = Counter()
    for head in heads:
        if head.value is not None:
            expected[head.partition].append(decode_row(head.value, AuditHead))
    for partition, found in expected.items():
        chains.setdefault(partition, Chain(partition)).expect(found)
    for entry in records:
        chains.setdefault(entry.partition, Chain(entry.partition)).add(
            entry.offset, entry.key, entry.value, entry.headers
        )
        record = decode(AuditRecord, entry.value, entry.headers)
        key = (record.user_id, record.request_id or "")
        if record.action is AuditAction.REQUEST:
            ended[key] += 1
        elif record.action is AuditAction.REFUSAL:
            refused[key] += 1
    wrong = [f"audit: {finding}" for chain in chains.values() for finding in chain.end()]
    due = {*asked} - refused.keys()
    wrong += [f"audit has {ended[key]} records of {key}" for key in due | ended.keys() if ended[key] != 1]
    if bad is not None and refused.total() != bad:
        wrong.append(f"audit has {refused.total()} refusals of {bad} records")
    return wrong
