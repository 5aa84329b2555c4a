"""`parley replay` and `parley export` beside a real worker: what a replay leaves behind, and what an export holds."""

from __future__ import annotations

import json
from pathlib import Path

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


async def test_a_replay_answers_anew_and_leaves_no_trace_in_conversations_or_exports(
    worker: WorkerProcess, client: Client, tmp_path: Path
) -> None:
    terminal = Terminal(worker.settings, tmp_path)
    asked = [await client.asked("ann", text, max_tokens=4) for text in ("first", "second")]
    turns = await client.turns_of("ann", 2)

    replay = await terminal.run("replay", "small", "--max-tokens", "6")
    assert (replay.code, replay.err) == (0, "2 answered\n")
    lines = {line["prompt"]: line for line in map(json.loads, replay.out.splitlines())}
    for answer, turn in zip(asked, turns, strict=True):
        line = lines[turn.prompt]
        assert (line["former_answer"], line["former_model_version"]) == (answer.text, turn.model_version)
        assert line["model_version"] != turn.model_version
        assert (line["usage"]["completion_tokens"], line["finish_reason"]) == (6, "length")
        assert line["answer"]
    context = [lines[prompt]["usage"]["prompt_tokens"] for prompt in ("first", "second")]
    assert context[1] > context[0], "the second one has seen the first turn"

    left = [turn for turn in await client.turns_of("ann", 4) if turn not in turns]
    assert [(turn.prompt, turn.answer) for turn in left] == [("", "")] * 2
    again = await terminal.run("replay", "small")
    assert again.err == "2 answered\n", "what was replayed is not replayed"
    export = await terminal.run("export")
    assert (export.code, export.out) == (0, ""), "answers that were cut are not exported"
    assert export.err == "0 turns in 0 lines; left out: 2 that did not end in `stop`\n"
