"""Faust's table manager for an app without Faust's tables.

Faust waits a second at its start for tables to be declared. Parley keeps its tables itself (tables/), so a worker is
ready a second earlier.
"""

from __future__ import annotations

from faust.tables.manager import TableManager


class NoTables(TableManager):
    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()
