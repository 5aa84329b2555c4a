"""docs/own-programs.md as it stands: programs of Faust, Quix Streams and Kafka Streams beside a worker.

Each asks for a title of a conversation that has a second turn. It reads no turn that was taken back, asks once for each
conversation though it is killed, and commits what it has read, whatever the ends of transactions are.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from app.local.jars import JarCache, cache_folder, kafka_jars, read_checksums
from app.local.report import silent
from app.wire.ids import partition_for
from tests.environment import environment_of
from tests.faults.worker_process import FAUST
from tests.integration.programs.conftest import Place
from tests.integration.worker.client import PATIENCE_S, Client
from tests.one_maker import one_maker

ROOT = Path(__file__).parents[3]
PROGRAMS = Path("deploy/examples/programs")
JARS = Path(__file__).with_name("kafka_streams_jars.sha256")
GROUPS = {"Faust": "titles-faust", "Quix Streams": "titles-quix", "Kafka Streams": "titles-streams"}
needs_javac = pytest.mark.skipif(shutil.which("javac") is None, reason="no javac: Kafka Streams' program was not run")
QUIX = pytest.param("Quix Streams", marks=pytest.mark.slow)
STREAMS = pytest.param("Kafka Streams", marks=[pytest.mark.slow, needs_javac])


def block_of(heading: str) -> str:
    """What the page says to type: what is above all headings, and what is below this one."""
    page = (ROOT / "docs" / "own-programs.md").read_text()
    first, *others = re.split(r"^## ", page, flags=re.MULTILINE)
    (part,) = (one for one in others if one.startswith(f"{heading}\n"))
    return "\n".join(
        block for text in (first, part) for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    )


class Program:
    """One of the page, in a copy of its folder: states and tables stay there."""

    def __init__(self, heading: str, place: Place, folder: Path) -> None:
        settings = place.worker.settings
        self.group, self.log, self.folder = GROUPS[heading], folder / "program.log", folder
        self._block = block_of(heading)
        shutil.copytree(ROOT / PROGRAMS, folder / PROGRAMS)
        self._environment = os.environ | {
            "KAFKA": place.kafka,
            "PARTITIONS": str(settings.partitions),
            "TURNS": settings.topic("turns"),
            "REQUESTS": settings.topic("requests"),
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            **_needed(heading),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["bash", "-euc", self._block],
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def tail(self) -> str:
        return self.log.read_text()[-3000:]


def _needed(heading: str) -> dict[str, str]:
    """Quix pins other packages than ours, and Kafka Streams' jars are no broker's."""
    if heading == "Quix Streams":
        packages = ROOT / ".venv" / "peers"
        with one_maker(packages):
            if not (packages / "quixstreams" / "__init__.py").exists():
                install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(packages)]
                subprocess.run([*install, "quixstreams>=3.28"], check=True, timeout=240)
        return {"PYTHONPATH": str(packages)}
    if heading == "Kafka Streams":
        jars = JarCache(cache_folder(), "Kafka Streams", read_checksums(JARS)).jars(silent)
        return {"JARS": ":".join(map(str, [*jars, *kafka_jars(silent)]))}
    return {}


@asynccontextmanager
async def taking_back(place: Place) -> AsyncIterator[AIOKafkaProducer]:
    options = place.worker.settings.cluster.options()
    producer = AIOKafkaProducer(**options, transactional_id=f"lost-owner-{place.run}")
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def take_back(producer: AIOKafkaProducer, place: Place, user: str, conversation: str) -> None:
    """Two turns of an owner that has lost its partition before its transaction is over."""
    turn = '{"request_id": "%d", "user_id": "%s", "conversation_id": "%s", "prompt": "taken back"}'
    await producer.begin_transaction()
    for number in range(2):
        value = (turn % (number, user, conversation)).encode()
        await producer.send_and_wait(place.worker.settings.topic("turns"), value, key=user.encode())
    await producer.abort_transaction()


async def titles(client: Client, user: str) -> Counter[str]:
    return Counter(turn.request_id for turn in await client.turns(user) if turn.conversation_id == "titles")


async def titles_are(client: Client, program: Program, user: str, wanted: set[str]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (there := await titles(client, user)).keys() >= wanted:
                assert program.runs, program.tail
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"{there}\n{program.tail}") from None
    assert there == Counter(wanted)


async def committed(client: Client, group: str, partition: int) -> int:
    admin = AIOKafkaAdminClient(**client.settings.cluster.options())
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
    finally:
        await admin.close()
    known = offsets.get(TopicPartition(client.settings.topic("turns"), partition))
    return -1 if known is None else known.offset


@pytest.fixture
def program(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> Iterator[Program]:
    program = Program(request.param, place, tmp_path)
    yield program
    program.kill()


@pytest.mark.parametrize("program", ["Faust", QUIX, STREAMS], indirect=True)
async def test_a_program_asks_once_for_each_conversation_though_it_is_killed(
    place: Place, client: Client, program: Program
) -> None:
    user, wanted = f"{program.group}-user", set[str]()
    async with taking_back(place) as lost_owner:

        async def talk(name: str) -> None:
            for prompt in ("Where to?", "And when?"):
                await client.asked(user, prompt, conversation_id=name, max_tokens=2)
                await take_back(lost_owner, place, user, f"{name}-lost")
            wanted.add(f"title-{name}")

        await talk("before")
        program.start()
        await titles_are(client, program, user, wanted)
        await talk("while-it-runs")
        await titles_are(client, program, user, wanted)
        program.kill()
        await talk("while-it-is-dead")
        program.start()
        await titles_are(client, program, user, wanted)
        for number in range(3):
            await talk(f"after-{number}")
        await titles_are(client, program, user, wanted)
        program.kill()
        program.start()
        await talk("at-the-end")
        await titles_are(client, program, user, wanted)
    partition = partition_for(user, place.worker.settings.partitions)
    last = max(one.offset for one in await client.records("turns") if one.partition == partition)
    async with asyncio.timeout(PATIENCE_S):
        while await committed(client, program.group, partition) <= last:
            await asyncio.sleep(0.5)
    assert await titles(client, user) == Counter(wanted), "a repeated question has been answered again"


@pytest.mark.parametrize("program", ["Faust"], indirect=True)
async def test_faust_alone_reads_what_was_taken_back(place: Place, client: Client, program: Program) -> None:
    """If this fails, Faust has learned it: the program needs less of `read_committed.py`."""
    source = program.folder / PROGRAMS / "read_committed.py"
    alone = source.read_text().replace('consumer._isolation_level = "read_committed"', "...")
    assert alone != source.read_text()
    source.write_text(alone)
    code = program.folder / PROGRAMS / "titles_faust.py"
    code.write_text(
        code.read_text().replace(f'"{program.group}"', '"titles-alone"')
    )  # the group before has dead members
    async with taking_back(place) as lost_owner:
        await take_back(lost_owner, place, "plain-faust", "lost")
    program.start()
    await titles_are(client, program, "plain-faust", {"title-lost"})


async def test_faust_sends_a_request_by_the_name_of_its_agent(place: Place, client: Client) -> None:
    """Though Parley's topics have a prefix."""
    request = json.dumps({"request_id": "by-faust", "user_id": "nina", "prompt": "Hello", "max_tokens": 3})
    command = [str(FAUST), "-A", "app", "send", "@requests", request, "--key", "nina"]
    environment = os.environ | environment_of(place.worker.settings) | {"PYTHONPATH": str(ROOT)}
    sent = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert sent.returncode == 0, sent.stderr
    assert len((await client.answer("nina", "by-faust")).tokens) == 3


@pytest.mark.parametrize("path", ["/graph/", "/router/", "/stats/", "/tables/"])
async def test_a_view_of_faust_says_why_it_is_off(place: Place, path: str) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        told = await http.get(f"http://127.0.0.1:{place.worker.web_port}{path}")
    assert (told.status_code, list(told.json())) == (404, ["error"])
    assert told.json()["error"].startswith("Faust's views are off")
