"""`parley search` as a user starts it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.local.milvus import MilvusNode
from app.local.ports import free_port
from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from models.embedder import Embedder
from tests.integration.search.history import NOW, Bench, turn


@pytest.fixture
async def ann(connection: Milvus, collection: str, embedder: Embedder) -> None:
    async with Bench(MilvusStore(connection, collection), embedder) as bench:
        bench.submit(turn("ann", "r1", "My package never arrived", "Order 4711 is delayed."))
        bench.submit(turn("ann", "r2", "Can I pay with PayPal?", "Yes.", created_at=NOW + 86_400_000))
        await bench.settled(2)


def parley(folder: Path, uri: str, collection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    names = {"PARLEY_MILVUS_URI": uri, "PARLEY_MILVUS_COLLECTION": collection}
    command = [str(Path(sys.executable).with_name("parley")), "search", *arguments]
    return subprocess.run(
        command, cwd=folder, env=os.environ | names, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.usefixtures("ann")
def test_paraphrase_is_printed_with_its_text(milvus: MilvusNode, collection: str, tmp_path: Path) -> None:
    ran = parley(tmp_path, milvus.uri, collection, "--user", "ann", "the parcel was not delivered")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "My package never arrived" in ran.stdout.splitlines()[3]


@pytest.mark.usefixtures("ann")
def test_json_is_one_array_of_hits_within_the_narrowing(milvus: MilvusNode, collection: str, tmp_path: Path) -> None:
    options = ["--user", "ann", "--json", "--role", "user", "--until", "2023-11-15T12:00Z", "-n", "1"]
    ran = parley(tmp_path, milvus.uri, collection, *options, "payment")
    (hit,) = json.loads(ran.stdout)
    assert (hit["request_id"], hit["role"], hit["user_id"]) == ("r1", "user", "ann")
    assert 0 < hit["similarity"] < 1


@pytest.mark.usefixtures("ann")
def test_nothing_found_is_said_and_no_failure(milvus: MilvusNode, collection: str, tmp_path: Path) -> None:
    ran = parley(tmp_path, milvus.uri, collection, "--user", "bob", "package")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr == "nothing found in the history of bob\n"


def test_milvus_that_is_away_is_one_line_and_exit_1(tmp_path: Path) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    ran = parley(tmp_path, uri, "turns", "--user", "ann", "package")
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"Error: Milvus at {uri}: cannot be reached")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["x"], "--user"), (["--user", "ann", " "], "QUERY"), (["--user", "a", "-n0", "x"], "-n")],
)
def test_wrong_use_is_exit_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    ran = parley(tmp_path, "http://127.0.0.1:1", "turns", *arguments)
    assert ran.returncode == 2
    assert message in ran.stderr.splitlines()[-1]
