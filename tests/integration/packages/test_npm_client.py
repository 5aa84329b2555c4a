"""The npm package `parley-client`, packed and installed as its users do, in Node; its types in TypeScript."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.faults.proxy import Proxy
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.npm import NODE, NPM
from tests.integration.npm_package import FOLDER, built
from tests.integration.packages.conftest import MOVED, Workers, hang_until_reconnected, move

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    NODE is None or NPM is None, reason="node is not installed: the npm package was not run"
)


def run(*command: str | Path, cwd: Path) -> str:
    ran = subprocess.run(
        [str(one) for one in command], cwd=cwd, capture_output=True, text=True, timeout=240, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the packed package is installed; beside it, for types alone, the AI SDK."""
    built()
    folder = tmp_path_factory.mktemp("consumer")
    run(NPM or "npm", "pack", "--ignore-scripts", "--pack-destination", folder, cwd=FOLDER)
    (packed,) = folder.glob("parley-client-*.tgz")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    offline = ("--offline", "--no-audit", "--no-fund", "--ignore-scripts")
    run(NPM or "npm", "install", *offline, packed, cwd=folder)
    for name in ("consumer.mjs", "consumer.ts", "hung.mjs", "ai_chat.mjs"):
        shutil.copy(HERE / name, folder)
    return folder


def test_the_packed_files_are_those_that_are_needed(consumer: Path) -> None:
    installed = consumer / "node_modules" / "parley-client"
    names = {path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file()}
    assert {"package.json", "README.md", "dist/index.js", "dist/index.d.ts", "dist/reader.js"} <= names
    assert not [name for name in names if name.startswith(("src/", "example/", "node_modules/"))]
    assert [path.name for path in (consumer / "node_modules").iterdir() if not path.name.startswith(".")] == [
        "parley-client"
    ], "it needs no other package"


def test_a_program_in_node_asks_follows_cancels_and_resumes(
    consumer: Path, gateway: GatewayProcess, workers: Workers
) -> None:
    seen = json.loads(run(NODE or "node", "consumer.mjs", gateway.url, cwd=consumer))
    kept = httpx.get(f"{gateway.url}/v1/requests/{seen['requestId']}", params={"user_id": "nina"}, timeout=60).json()[
        "text"
    ]
    assert seen["text"] == seen["again"] == kept
    assert kept.endswith(seen["rest"])
    assert 0 < len(seen["rest"]) < len(kept)
    assert seen["pieces"] > 2
    assert seen["vectors"] > 10
    expected = {
        "rule": "function",
        "sameAnswer": True,
        "cancelled": "cancelled",
        "once": 3,
        "failed": ["AnswerFailedError", "invalid_request"],
        "refused": ["RefusedError", "invalid_request"],
        "unknown": ["RefusedError", "not_found"],
        "behind": "after: the answer has ended before 9999",
        "nobody": ["UnreachableError", None],
        "classes": True,
        "types": ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"],
        "sameTwice": True,
        "over": None,
        "call": ["look_up", "string"],
        "afterResult": True,
    }
    assert {name: seen[name] for name in expected} == expected


@asynccontextmanager
async def asking(consumer: Path, gateway: GatewayProcess) -> AsyncIterator[tuple[Proxy, asyncio.StreamReader]]:
    """A program that asks the gateway through a proxy, and what it writes."""
    async with asyncio.timeout(120), Proxy(gateway.settings.gateway_port) as proxy:
        command = (NODE or "node", "hung.mjs", f"http://127.0.0.1:{proxy.port}")
        program = await asyncio.create_subprocess_exec(*command, cwd=consumer, stdout=PIPE)
        assert program.stdout is not None
        try:
            yield proxy, program.stdout
        finally:
            if program.returncode is None:
                program.kill()
            await program.wait()


async def end(gateway: GatewayProcess, request_id: str) -> str:
    """Cancel the program's answer; its place."""
    place = f"{gateway.url}/v1/requests/{request_id}"
    await asyncio.to_thread(httpx.delete, place, params={"user_id": "nina"}, timeout=60)
    return place


async def test_a_stream_without_keep_alives_goes_on_over_another_connection(
    consumer: Path, gateway: GatewayProcess, workers: Workers
) -> None:
    async with asking(consumer, gateway) as (proxy, output):
        running = (await output.readline()).decode().strip()
        await hang_until_reconnected(proxy)
        place = await end(gateway, running)
        _, text = json.loads(await output.read())
    kept = httpx.get(place, params={"user_id": "nina"}, timeout=60).json()
    assert (kept["status"], kept["text"]) == ("done", text)


async def test_an_answer_of_which_the_turn_alone_is_left_is_shown_whole(
    consumer: Path, gateway: GatewayProcess, moved: GatewayProcess, workers: Workers
) -> None:
    async with asking(consumer, gateway) as (proxy, output):
        running = (await output.readline()).decode().strip()
        await move(proxy, moved, running)
        request_id, text = json.loads(await output.read())
    assert (request_id, text) == (running, MOVED)
    await end(gateway, running)


def ai_sdk(consumer: Path) -> None:
    """The real one, beside the package."""
    for name in ("ai", "@ai-sdk", "@standard-schema", "@opentelemetry"):
        source, link = FOLDER / "node_modules" / name, consumer / "node_modules" / name
        if source.exists() and not link.exists():
            link.symlink_to(source)


def test_a_chat_of_the_ai_sdk_replaces_what_it_asks_again(
    consumer: Path, gateway: GatewayProcess, workers: Workers
) -> None:
    ai_sdk(consumer)
    steps = json.loads(run(NODE or "node", "ai_chat.mjs", gateway.url, cwd=consumer))
    versions, interrupted = steps.pop("versions"), steps.pop("interrupted")
    assert {name: step["error"] for name, step in steps.items() if "error" in step} == {}
    sent = {name: step["sent"] for name, step in steps.items()}
    ids = {name: sent[name]["request_id"] for name in sent}
    (_, one), (_, first), (_, two), (_, second) = steps["asked"]["shown"]
    assert (one, two, second) == ("one", "two", ids["asked"])
    assert {one["conversation_id"] for one in sent.values() if one["conversation_id"].startswith("ai-chat")} == {
        "ai-chat"
    }
    assert all("from" not in one for one in sent.values()), "the messages of the page are the whole context"
    assert sent["again"].items() >= {"messages": 3, "replaces": [second]}.items()
    assert steps["again"]["shown"] == [
        ["user", "one"],
        ["assistant", first],
        ["user", "two"],
        ["assistant", ids["again"]],
    ]
    assert sent["first again"].items() >= {"messages": 1, "replaces": [first, ids["again"]]}.items()
    assert steps["first again"]["shown"] == [["user", "one"], ["assistant", ids["first again"]]]
    assert sent["edited"].items() >= {"messages": 1, "replaces": [ids["first again"]]}.items()
    assert steps["edited"]["shown"] == [["user", "uno"], ["assistant", ids["edited"]]]
    assert sent["behind the first one"]["messages"] == 3
    assert sent["the first one again"]["replaces"] == [first, ids["behind the first one"]]
    assert sent["again after a reload"]["replaces"] == [ids["the first one again"]]
    # Nobody knows which answer that replaces.
    assert "replaces" not in sent["without an id after a reload"]
    versions_of_one = ("first again", "edited", "the first one again", "again after a reload")
    assert versions == [first, *(ids[name] for name in versions_of_one)]
    for name in ("forgotten", "with instructions"):
        assert len(sent[name]["replaces"]) == 1
        assert steps[name]["shown"][-1] == ["assistant", ids[name]]
    assert sent["interrupts"]["while_busy"] == "interrupt"
    assert interrupted == "cancelled"


def test_a_program_in_typescript_has_the_types(consumer: Path) -> None:
    ai_sdk(consumer)
    options = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext"]
    compiler = FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
    run(NODE or "node", compiler, *options, "--lib", "es2023,dom,dom.iterable", "consumer.ts", cwd=consumer)
