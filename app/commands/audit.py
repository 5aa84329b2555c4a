"""`parley audit`: show the audit log, verify its chains, and sign their heads."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
from aiokafka import ConsumerRecord
from rich import box
from rich.table import Table as View

from app.audit.seal import Seal, SealedHead, SealError, private_key, public_key, read_seal
from app.audit.verify import Chain, Finding
from app.commands.moment import Moment
from app.commands.scan import records_since
from app.commands.terminal import WrongUseError, note, print_table, run, settings_of_terminal
from app.delivery.commits.audit_chain import hash_of, text_digest
from app.kafka.clients import KafkaAwayError, KafkaUnusableError, partitions_of
from app.process.printable import printable, printable_json
from app.settings import Settings
from app.wire.audit import AuditRecord
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.ids import partition_for
from tables.records import AUDIT_HEAD, AUDIT_KEY, AuditHead, AuditKey, Table, decode_row

_COLUMNS = ("time", "action", "outcome", "user", "request", "model", "route", "tokens", "categories")
_HEADS_AGAIN = 5
_File = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(short_help="Show, verify and sign the audit log.")
def audit() -> None:
    """Show the audit log, verify that it is complete, and sign its state."""


@audit.command()
@click.option("-u", "--user", help="Only this user, as in Kafka (`tenant/user`).")
@click.option("--tenant", help="Only this tenant.")
@click.option("--action", help="Only this action: request, refusal, erasure, search, denied, admin or retreat.")
@click.option("--since", type=Moment(), default="24h", show_default=True, help="Records from this time on.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line.")
def show(user: str | None, tenant: str | None, action: str | None, since: int, *, as_json: bool) -> None:
    """Show the records, oldest first."""

    def is_asked(record: AuditRecord) -> bool:
        return all(
            wanted in {None, value}
            for wanted, value in ((user, record.user_id), (tenant, record.tenant), (action, record.action))
        )

    records = run(_records(settings_of_terminal(), since))
    shown = sorted((record for record in records if is_asked(record)), key=lambda record: record.at)
    if as_json:
        for record in shown:
            click.echo(printable_json(msgspec.json.encode(record)))
    elif shown:
        _show(shown)
    else:
        note("no audit records since then")


@audit.command()
@click.option("--seal", "sealed", type=_File, help="Also compare with this seal.")
@click.option("--key", type=_File, help="The public key of the seal, a PEM file.")
def verify(sealed: Path | None, key: Path | None) -> None:
    """Verify the chain of every partition; exit code 1 if a record was changed, removed or added, or an end was cut."""
    if (sealed is None) != (key is None):
        raise WrongUseError("--seal and --key go together")
    settings = settings_of_terminal()
    seal = None
    if sealed is not None and key is not None:
        try:
            seal = read_seal(sealed)
            seal.check(public_key(key))
        except SealError as error:
            raise WrongUseError(str(error)) from None
        if seal.topic != settings.topic("audit"):
            raise WrongUseError(f"the seal is of the topic {seal.topic}, not {settings.topic('audit')}")
    chains, findings = _verified(settings, seal)
    for finding in findings:
        click.echo(printable(str(finding)))
    if findings:
        raise click.ClickException(f"{len(findings)} faults in {len(chains)} chains")
    count = sum(chain.records for chain in chains)
    begun_late = [chain for chain in chains if chain.first or chain.has_left]
    note(f"{count} records in {len(chains)} chains: complete and unchanged")
    if begun_late:
        note(f"{len(begun_late)} chains begin behind their first record: older records have left by retention")


@audit.command()
@click.option("-u", "--user", required=True, help="Whose text it was, as in Kafka (`tenant/user`).")
@click.argument("text", type=click.File("rb"), default="-")
def digest(user: str, text: BinaryIO) -> None:
    """Print what `prompt_sha256` or `answer_sha256` is for the TEXT of a file or of stdin, to show that a record is of
    this text.
    """
    settings = settings_of_terminal()
    key = run(_key(settings, partition_for(user, settings.partitions)))
    if key is None:
        raise click.ClickException(f"the partition of {user} has no audited request yet")
    click.echo(text_digest(key, user, hash_of(text.read())))


async def _key(settings: Settings, partition: int) -> bytes | None:
    key = None
    async for row in _audit_rows(settings):
        if row.partition == partition and row.key == AUDIT_KEY:
            key = decode_row(row.value, AuditKey).key
    return key


@audit.command()
@click.option("--key", required=True, type=_File, help="The private Ed25519 key, a PEM file without a password.")
@click.argument("path", type=click.Path(path_type=Path))
def seal(key: Path, path: Path) -> None:
    """Verify the chains, and write their signed heads to PATH."""
    settings = settings_of_terminal()
    try:
        signing = private_key(key)
    except SealError as error:
        raise WrongUseError(str(error)) from None
    chains, findings = _verified(settings, None)
    if findings:
        raise click.ClickException(f"{findings[0]}; `parley audit verify` shows all of {len(findings)} faults")
    heads = tuple(SealedHead(one.partition, one.confirmed.sequence, one.confirmed.hash) for one in chains)
    made = Seal(made_at=time.time_ns() // 1_000_000, topic=settings.topic("audit"), heads=heads)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(made.signed_with(signing)), indent=1) + b"\n")
    note(f"{path}: {sum(chain.records for chain in chains)} records in {len(chains)} chains are sealed")


def _verified(settings: Settings, seal: Seal | None) -> tuple[list[Chain], list[Finding]]:
    chains = run(_chains(settings, seal))
    return chains, [finding for chain in chains for finding in chain.end()]


async def _records(settings: Settings, since: int) -> list[AuditRecord]:
    records: list[AuditRecord] = []
    async for record in records_since(settings, "audit", since):
        try:
            records.append(decode(AuditRecord, record.value, record.headers))
        except WireError as error:
            note(f"audit partition {record.partition} offset {record.offset} is skipped: {error}")
    return records


async def _chains(settings: Settings, seal: Seal | None) -> list[Chain]:
    """All chains, compared with their heads before and after they were read."""
    kept_since = time.time_ns() // 1_000_000 - settings.audit_retention_s * 1000
    chains = {partition: Chain(partition, kept_since) for partition in range(settings.partitions)}
    for partition, rows in (await _heads(settings)).items():
        chains.setdefault(partition, Chain(partition, kept_since)).expect([rows[-1].head], rows[-1].at)
    for one in () if seal is None else seal.heads:
        chain = chains.setdefault(one.partition, Chain(one.partition, kept_since))
        chain.expect([AuditHead(one.sequence, one.hash)], None if seal is None else seal.made_at)
    async for record in records_since(settings, "audit", 0):
        chains[record.partition].add(record.offset, record.key, record.value, record.headers)
    heads = await _heads_behind(settings, chains)
    for partition, chain in chains.items():
        chain.confirm(row.head for row in heads[partition])
    return [chains[partition] for partition in sorted(chains)]


@dataclass(frozen=True, slots=True)
class _HeadRow:
    head: AuditHead
    at: int


async def _heads_behind(settings: Settings, chains: dict[int, Chain]) -> dict[int, list[_HeadRow]]:
    """The heads, once they are not older than what was read: the two topics of a transaction show it one after the
    other.
    """
    for _ in range(_HEADS_AGAIN):
        heads = await _heads(settings)
        if all(not chain.records or _newest(heads[number]) >= chain.last.sequence for number, chain in chains.items()):
            break
        await asyncio.sleep(1)
    return heads


def _newest(rows: list[_HeadRow]) -> int:
    return rows[-1].head.sequence if rows else -1


async def _heads(settings: Settings) -> defaultdict[int, list[_HeadRow]]:
    """The heads of each partition that its changelog still has, the newest one last."""
    heads: defaultdict[int, list[_HeadRow]] = defaultdict(list)
    async for row in _audit_rows(settings):
        if row.key == AUDIT_HEAD:
            heads[row.partition].append(_HeadRow(decode_row(row.value, AuditHead), row.timestamp))
    return heads


async def _audit_rows(settings: Settings) -> AsyncIterator[ConsumerRecord]:
    topic = f"{settings.app_id}-{Table.AUDIT.value}-changelog"
    await partitions_of(settings.cluster, [settings.topic("audit")])
    try:
        await partitions_of(settings.cluster, [settings.topic(topic)])
    except KafkaAwayError:
        raise
    except KafkaUnusableError:
        raise KafkaUnusableError(
            f"there is no {settings.topic(topic)!r}: no worker has run yet, so nothing is audited; or it was deleted"
        ) from None
    async for row in records_since(settings, topic, 0):
        if row.value is not None:
            yield row


def _show(records: list[AuditRecord]) -> None:

    table = View(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in _COLUMNS:
        table.add_column(name, no_wrap=name == "time", justify="right" if name == "tokens" else "left")
    for record in records:
        table.add_row(*(printable(cell) for cell in _cells(record)))
    print_table(table)


def _cells(record: AuditRecord) -> tuple[Any, ...]:
    at = datetime.fromtimestamp(record.at / 1000, UTC).astimezone()
    times = f" x{record.count}" if record.count > 1 else ""
    tokens = f"{record.prompt_tokens}+{record.completion_tokens}" if record.request_id is not None else ""
    return (
        f"{at:%Y-%m-%d %H:%M:%S}",
        str(record.action),
        record.outcome + times,
        record.user_id,
        record.request_id or "",
        record.model_version or "",
        record.route or "",
        tokens,
        ", ".join(record.categories),
    )
