"""`parley experiment`: the arms of an experiment side by side."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
import msgspec
from rich import box
from rich.table import Table

from app.commands.arms import ArmSummary, Interval
from app.commands.moment import Moment
from app.commands.scan import records_since
from app.commands.terminal import WrongUseError, note, print_table, run, settings_of_terminal
from app.policy.check import read_policy
from app.policy.file import PolicyError
from app.prices import PriceList
from app.process.printable import printable, printable_json
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.event import PLAN, TokenEvent
from app.wire.turn import Turn

_COLUMNS = {
    "arm": "arm",
    "users": "users",
    "requests": "requests",
    "errors": "errors",
    "first_token_p50_ms": "first token p50 ms",
    "first_token_p95_ms": "p95 ms",
    "duration_p50_ms": "whole p50 ms",
    "answer_tokens": "answer tokens",
    "cost": "cost of an answer",
}


@click.command(short_help="Compare the arms of an experiment.")
@click.argument("name")
@click.option("--since", type=Moment(), default="7d", show_default=True, help="Requests from this time on.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def experiment(name: str, since: int, *, as_json: bool) -> None:
    """Compare the arms of the experiment NAME: errors, latencies, lengths and cost, with 95 % intervals."""
    try:
        arms = run(_arms(settings_of_terminal(), name, since))
    except PolicyError as error:
        raise WrongUseError(str(error)) from None
    figures = [arms[arm].figures for arm in sorted(arms)]
    if as_json:
        click.echo(
            printable_json(msgspec.json.encode([{key: _plain(value) for key, value in one.items()} for one in figures]))
        )
    elif figures:
        _show(figures)
    else:
        note(f"no requests of the experiment {printable(name)} since then")


async def _arms(settings: Settings, name: str, since: int) -> dict[str, ArmSummary]:
    """Answers are on `turns`; errors are on `tokens`, which are kept for a shorter time."""
    arms: dict[str, ArmSummary] = {}
    prices = PriceList(settings.prices, read_policy(settings))
    decided: dict[tuple[str | None, str | None], str] = {}
    async for record in records_since(settings, "tokens", since):
        try:
            event = decode(TokenEvent, record.value, record.headers)
        except WireError:
            continue
        key = (event.user_id, event.request_id)
        if event.notice is not None and event.notice.code == PLAN:
            details = event.notice.details or {}
            if details.get("experiment") == name:
                decided[key] = str(details.get("arm"))
        elif event.error is not None and key in decided:
            # A next owner may write the same end again.
            arm = decided.pop(key)
            summary = arms.setdefault(arm, ArmSummary(arm))
            summary.errors += 1
            summary.users.add(event.user_id or "")
    async for record in records_since(settings, "turns", since):
        try:
            turn = decode(Turn, record.value, record.headers)
        except WireError:
            continue
        if turn.experiment == name and turn.arm is not None:
            _count(arms.setdefault(turn.arm, ArmSummary(turn.arm)), turn, prices)
    return arms


def _count(summary: ArmSummary, turn: Turn, prices: PriceList) -> None:
    summary.answers += 1
    summary.users.add(turn.user_id)
    summary.lengths.append(turn.usage.completion_tokens)
    summary.costs.append(prices.cost(turn.model_version, turn.usage, is_cached=turn.cached is not None))
    if turn.timing is not None:
        summary.durations.append(max(0, turn.created_at - turn.timing.requested_at))
        if turn.timing.first_token_at is not None:
            summary.first_tokens.append(max(0, turn.timing.first_token_at - turn.timing.requested_at))


def _plain(value: Any) -> Any:
    return asdict(value) if isinstance(value, Interval) else value


def _show(figures: list[dict[str, Any]]) -> None:

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, title in _COLUMNS.items():
        table.add_column(title, justify="left" if name == "arm" else "right", no_wrap=True)
    for one in figures:
        cells = (one[name] for name in _COLUMNS)
        table.add_row(*("-" if cell is None else printable(str(cell)) for cell in cells))
    print_table(table)
