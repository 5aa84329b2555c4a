"""Past turns beside a real worker: what asking them again leaves behind, and what an export holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.worker_process import WorkerProcess
from tests.integration.commands.terminal import Terminal
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

POLICY = """
[models.small]
path = "small"
engine = "paced"

[tenants."*"]
models = ["default", "small"]
training = true
"""


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory) -> WorkerProcess:
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text(POLICY)
    return start_worker(policy=policy)


async def asked_again(terminal: Terminal) -> dict[str, Any]:
    """The answers by their conversations."""
    requests = await terminal.run("export", "--requests", "small")
    assert (requests.code, requests.err) == (0, "2 requests\n")
    short = "".join(json.dumps(json.loads(line) | {"max_tokens": 6}) + "\n" for line in requests.out.splitlines())
    answers = await terminal.run("send", "-", "--at-once", "1", typed=short)
    assert (answers.code, answers.err.splitlines()[-1]) == (0, "2 answered")
    return {line["conversation_id"]: line for line in map(json.loads, answers.out.splitlines())}


async def test_past_requests_are_answered_anew_and_leaves_no_trace_in_conversations_or_exports(
    worker: WorkerProcess, client: Client, tmp_path: Path
) -> None:
    terminal = Terminal(worker.settings, tmp_path)
    asked = [await client.asked("ann", text, max_tokens=4) for text in ("first", "second")]
    turns = await client.turns_of("ann", 2)

    lines = await asked_again(terminal)
    for answer, turn in zip(asked, turns, strict=True):
        line = lines[f"replay-{answer.request_id}"]
        assert line["model_version"] != turn.model_version
        assert (line["error"], line["finish_reason"]) == (None, "length")
        assert line["answer"]
    context = [lines[f"replay-{answer.request_id}"]["usage"]["prompt_tokens"] for answer in asked]
    assert context[1] > context[0], "the second one has seen the first turn"

    left = [turn for turn in await client.turns_of("ann", 4) if turn not in turns]
    assert [(turn.prompt, turn.answer) for turn in left] == [("", "")] * 2
    assert len(await asked_again(terminal)) == 2, "what was asked again is not asked again"
    export = await terminal.run("export")
    assert (export.code, export.out) == (0, ""), "answers that were cut are not exported"
    assert export.err == "0 turns in 0 lines; left out: 2 that did not end in `stop`\n"
