"""The first messages that `deploy/examples` shows, as a newcomer runs them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NewSettings
from tests.integration.npm import NODE, NPM, installed
from tests.integration.scripted_worker import scripted_worker

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
README = (Path(__file__).parents[2] / "README.md").read_text()
READER = Path(__file__).parents[2] / "app" / "reader" / "reader.mjs"
NPM_KAFKA = Path(__file__).parent / "npm_kafka"
needs_node = pytest.mark.skipif(
    NODE is None or NPM is None, reason="node is not installed: the JavaScript example was not run"
)
needs_kcat = pytest.mark.skipif(
    not (shutil.which("kcat") and shutil.which("jq")),
    reason="kcat or jq is not installed: the shell example was not run",
)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([sys.executable, "first_message.py"], id="python"),
        pytest.param(["bash", "first_message.sh"], id="shell", marks=needs_kcat),
    ],
)
async def test_example_prints_the_answer_and_ends(new_settings: NewSettings, command: list[str]) -> None:
    settings = await new_settings(topic_prefix="")
    async with scripted_worker(settings) as worker:
        process = await asyncio.create_subprocess_exec(
            *command,
            "Hello you",
            cwd=EXAMPLES,
            env=os.environ | {"KAFKA": settings.cluster.servers[0]},
            stdout=PIPE,
            stderr=PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 180)
    assert (process.returncode, out.decode().splitlines()) == (0, ["Hello you ", "[stop]"]), err.decode()
    assert [request.user_id for request in worker.requests] == ["ann"] * len(worker.requests)


async def test_the_python_of_the_readme_prints_the_answer_and_ends(
    new_settings: NewSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    settings = await new_settings(topic_prefix="")
    async with scripted_worker(settings):
        await asyncio.wait_for(scope["ask"](settings.cluster.servers[0], "ann", "Hello you"), 180)
    assert capsys.readouterr().out == "Hello you "


async def test_example_without_a_broker_ends_with_one_line() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "first_message.py", cwd=EXAMPLES, env=os.environ | {"KAFKA": "127.0.0.1:1"}, stderr=PIPE
    )
    _, err = await asyncio.wait_for(process.communicate(), 180)
    assert process.returncode == 1
    assert err.decode().splitlines() == [
        "no Kafka answers at 127.0.0.1:1: name it with KAFKA=host:port (`parley local up` prints it)"
    ]


@needs_node
async def test_example_for_node_prints_the_answer_and_ends(new_settings: NewSettings, tmp_path: Path) -> None:
    """Its client is looked for beside it."""
    (tmp_path / "node_modules").symlink_to(installed(NPM_KAFKA))
    example = shutil.copy(EXAMPLES / "first_message.mjs", tmp_path)
    settings = await new_settings(topic_prefix="")
    async with scripted_worker(settings) as worker:
        process = await asyncio.create_subprocess_exec(
            str(NODE),
            str(example),
            "Hello you",
            env=os.environ | {"KAFKA": settings.cluster.servers[0], "READER": str(READER)},
            stdout=PIPE,
            stderr=PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 180)
    assert (process.returncode, out.decode().splitlines()) == (0, ["Hello you ", "[stop]"]), err.decode()
    assert {request.user_id for request in worker.requests} == {"ann"}
