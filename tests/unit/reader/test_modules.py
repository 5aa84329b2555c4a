"""Python's reader and the ES module agree: on the shared vectors, and on any log."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.wire.codec import decode, encode
from app.wire.event import TokenEvent
from tests.examples import examples
from tests.unit.reader.logs import Partition, partitions
from tests.unit.reader.summary import replay, replay_by_client

HERE = Path(__file__).parent
VECTORS: list[dict[str, Any]] = json.loads(
    (HERE.parents[2] / "deploy" / "packages" / "conformance" / "vectors.json").read_text()
)
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed: the ES module was not run")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_shared_vector(vector: dict[str, Any]) -> None:
    records = [(p, offset, decode(TokenEvent, json.dumps(event).encode())) for p, offset, event in vector["records"]]
    assert replay(records) == vector["expect"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_shared_vector_in_the_clients_reader(vector: dict[str, Any]) -> None:
    assert replay_by_client(vector["records"]) == vector["expect"]


@given(partition=partitions(), start=st.integers(0, 20))
def test_the_clients_reader_makes_the_same_of_any_log(partition: Partition, start: int) -> None:
    heard = [(0, offset, event) for offset, event in partition.log if offset >= start]
    plain = [[0, offset, json.loads(encode(event)[0])] for _, offset, event in heard]
    assert replay_by_client(plain) == replay(heard)


@needs_node
def test_tests_of_the_es_module_pass() -> None:
    command = [str(NODE), "--test", str(HERE / "reader.test.mjs")]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"# pass {len(VECTORS)}" not in run.stdout  # its own tests ran too
    assert "# fail 0" in run.stdout


@needs_node
@settings(examples(0.05), suppress_health_check=list(HealthCheck))
@given(logs=st.lists(st.tuples(partitions(), st.integers(0, 20)), min_size=20, max_size=40))
def test_both_readers_make_the_same_of_any_log(logs: list[tuple[Partition, int]]) -> None:
    """A few long examples, since each starts a process."""
    heard = [[(0, o, event) for o, event in partition.log if o >= start] for partition, start in logs]
    expected = [replay(records) for records in heard]
    assert run_node(heard) == expected


def run_node(logs: list[list[tuple[int, int, TokenEvent]]]) -> list[dict[str, Any]]:
    lines = [json.dumps([[p, o, json.loads(encode(event)[0])] for p, o, event in records]) for records in logs]
    command = [str(NODE), str(HERE / "replay.mjs")]
    run = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]
