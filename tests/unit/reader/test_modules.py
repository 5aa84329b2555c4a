"""Python's reader and the ES module agree: on the shared vectors, and on any log."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.wire.codec import decode, encode
from app.wire.event import TokenEvent
from tests.examples import examples
from tests.unit.reader.logs import Partition, partitions
from tests.unit.reader.summary import replay

HERE = Path(__file__).parent
VECTORS: list[dict[str, Any]] = json.loads(
    (HERE.parents[2] / "deploy" / "packages" / "conformance" / "vectors.json").read_text()
)
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed: the ES module was not run")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
@pytest.mark.parametrize("as_read", [dict, lambda event: decode(TokenEvent, json.dumps(event).encode())])
def test_shared_vector(vector: dict[str, Any], as_read: Callable[[dict[str, Any]], Any]) -> None:
    """Of events as clients have them, and as Parley's own processes do."""
    assert replay((p, offset, as_read(event)) for p, offset, event in vector["records"]) == vector["expect"]


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
