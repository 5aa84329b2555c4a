"""The example of docs/foreign-records.md, as a reader of the page runs it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from tests.integration.worker.conftest import StartWorker

PAGE = (Path(__file__).parents[3] / "docs" / "foreign-records.md").read_text()


async def test_the_page_does_what_it_says(start_worker: StartWorker, tmp_path: Path) -> None:
    policy, by_token = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (printed,) = re.findall(r"It prints `(.*?)`\.", PAGE)
    (tmp_path / "policy.toml").write_text(policy + by_token)
    worker = await asyncio.to_thread(start_worker, policy=tmp_path / "policy.toml")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env=os.environ | {"KAFKA": worker.settings.cluster.servers[0]},
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err.decode()
    assert re.fullmatch(re.escape(printed).replace("…", ".+"), out.decode().strip(), re.DOTALL), out.decode()
