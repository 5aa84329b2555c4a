from __future__ import annotations

import asyncio
import inspect

from faust.tables.manager import TableManager

from app.application import create_app
from app.faust.no_tables import NoTables
from app.settings import Settings


def test_nothing_but_the_wait_is_left_out_of_the_start_of_the_installed_faust() -> None:
    source = inspect.getsource(TableManager.on_start)
    steps = [line.strip() for line in source.splitlines() if "await" in line]
    assert steps == ["await self.sleep(1.0)", "await self._update_channels()", "await self.recovery.start()"]


def test_worker_has_no_tables_of_faust() -> None:
    assert asyncio.iscoroutinefunction(NoTables.on_start)
    app = create_app(Settings(_env_file=None))
    assert isinstance(app.tables, NoTables)
    assert not app.tables
