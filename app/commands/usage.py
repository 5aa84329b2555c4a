"""`parley usage`: requests, tokens, cost and latency by minute, tenant and model."""

from __future__ import annotations

import click
import msgspec
from rich import box
from rich.table import Table

from app.commands.moment import Moment
from app.commands.scan import records_since
from app.commands.terminal import note, print_table, run, settings_of_terminal
from app.commands.usage_sums import as_dict, cells, merged
from app.process.printable import printable_json
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.usage import UsageWindow


@click.command()
@click.option("--tenant", help="Only this tenant; '' for requests without one.")
@click.option("--model", help="Only this model version.")
@click.option("--since", type=Moment(), default="24h", show_default=True, help="Windows from this time on.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def usage(tenant: str | None, model: str | None, since: int, *, as_json: bool) -> None:
    """Show usage by minute. A window is published shortly after its end."""
    windows = run(_windows(settings_of_terminal(), since))
    sums = merged(
        window
        for window in windows
        if (tenant is None or window.tenant == tenant)
        and (model is None or window.model == model)
        and window.window_start + window.window_ms > since
    )
    if as_json:
        click.echo(printable_json(msgspec.json.encode([as_dict(one) for one in sums])))
    elif sums:
        _show(sums)
    else:
        note("no usage yet; a window is published shortly after its end")


async def _windows(settings: Settings, since: int) -> list[UsageWindow]:
    """All records of `usage` that may concern windows from `since` on: a record is written after its window begins."""
    windows: list[UsageWindow] = []
    async for record in records_since(settings, "usage", since):
        try:
            windows.append(decode(UsageWindow, record.value, record.headers))
        except WireError as error:
            note(f"usage partition {record.partition} offset {record.offset} is skipped: {error}")
    return windows


def _show(sums: list[UsageWindow]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("from", no_wrap=True)
    table.add_column("tenant")
    table.add_column("model")
    table.add_column("route")
    for name in (
        "requests",
        "prompt tokens",
        "cached",
        "answer tokens",
        "cost",
        "per 1k",
        "first token p50, p95",
        "whole p50, p95",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for one in sums:
        table.add_row(*cells(one))
    print_table(table)
