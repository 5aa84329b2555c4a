"""`parley local up`, `down` and `status` on real parts."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from dotenv import dotenv_values

from app.local.env_file import EnvFile
from app.local.instance import InstancePorts, LocalInstance, remember_ports, remembered_ports
from app.local.ports import free_port
from tests.integration.local.cli import begin_parley_local, parley_local, processes_below


def _pids(where: Path) -> dict[str, int | None]:
    return {part.name: part.pid for part in LocalInstance(where / ".parley/local").status()}


def _env(where: Path) -> dict[str, str | None]:
    return dotenv_values(where / ".parley/local.env")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory in which `parley local up` has run."""
    where = tmp_path_factory.mktemp("up")
    try:
        done = parley_local(where, "up")
        assert done.returncode == 0, done.stdout + done.stderr
        yield where
    finally:
        parley_local(where, "down")
        left = processes_below(where)
        for process in left:
            process.kill()
        assert not left


def test_up_again_touches_nothing_that_lives(up: Path) -> None:
    before, env = _pids(up), _env(up)
    assert parley_local(up, "up").returncode == 0
    assert _pids(up) == before
    assert _env(up) == env


def test_two_ups_at_once_start_each_part_once_and_down_ends_even_one_that_hangs(tmp_path: Path) -> None:
    both = [begin_parley_local(tmp_path, "up") for _ in range(2)]
    try:
        output = [one.communicate(timeout=200)[0] for one in both]
        assert [one.returncode for one in both] == [0, 0], output
        assert len(processes_below(tmp_path)) == 2

        _suspend(tmp_path)
        assert "Milvus does not answer" in parley_local(tmp_path, "status").stdout
        hung = parley_local(tmp_path, "up")
        assert hung.returncode == 1
        assert "does not answer" in hung.stderr
        assert "parley local down" in hung.stderr
    finally:
        assert parley_local(tmp_path, "down").returncode == 0
    assert processes_below(tmp_path) == []
    assert not (tmp_path / ".parley/local.env").exists()


async def test_a_killed_kafka_comes_back_at_its_address_with_its_records(up: Path) -> None:
    before, env = _pids(up), _env(up)
    address = str(env["PARLEY_BROKER"]).removeprefix("kafka://")
    producer = AIOKafkaProducer(bootstrap_servers=address)
    await producer.start()
    await producer.send_and_wait("turns", b"kept", partition=0)
    await producer.stop()

    LocalInstance(up / ".parley/local", up)._parts(_ports(up))[0].kill()
    assert parley_local(up, "status").returncode == 1
    again = parley_local(up, "up")
    assert again.returncode == 0, again.stdout + again.stderr

    after = _pids(up)
    assert after["Kafka"] != before["Kafka"]
    assert after["Milvus"] == before["Milvus"]
    assert _env(up) == env
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("turns", 0)])
    await consumer.start()
    assert (await consumer.getone()).value == b"kept"
    await consumer.stop()


def test_an_occupied_port_that_was_asked_for_is_wrong_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = parley_local(tmp_path, "up", "--kafka-port", str(port))
    assert done.returncode == 2
    assert f"port {port} is in use" in done.stderr
    assert "--kafka-port" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert processes_below(tmp_path) == []


def test_a_remembered_port_that_was_taken_meanwhile_is_a_failure_with_a_way_out(tmp_path: Path) -> None:
    folder = tmp_path / ".parley/local"
    folder.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        remember_ports(folder, InstancePorts(kafka=free_port(), kafka_controller=free_port(), milvus=port))
        done = parley_local(tmp_path, "up")
    assert done.returncode == 1
    assert f"port {port}, which Milvus had before" in done.stderr
    assert "--milvus-port 0" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert processes_below(tmp_path) == []


def test_a_running_part_is_not_moved(up: Path) -> None:
    before = _pids(up)
    done = parley_local(up, "up", "--milvus-port", str(free_port()))
    assert done.returncode == 2
    assert "Milvus" in done.stderr
    assert "is already running" in done.stderr
    assert _pids(up) == before


def test_sigterm_in_the_middle_of_up_leaves_nothing(tmp_path: Path) -> None:
    starting = begin_parley_local(tmp_path, "up")
    while not processes_below(tmp_path):
        assert starting.poll() is None
    starting.send_signal(signal.SIGTERM)
    starting.communicate(timeout=120)
    assert processes_below(tmp_path) == []


def test_down_leaves_the_address_file_of_another_instance(up: Path) -> None:
    env = _env(up)
    assert parley_local(up, "down", "--data-dir", "another").returncode == 0
    assert _env(up) == env


def test_down_gives_the_address_file_back_to_a_running_instance_that_had_it(up: Path) -> None:
    env = _env(up)
    (up / "another").mkdir()
    EnvFile(up, up / "another").write({"PARLEY_BROKER": "kafka://127.0.0.1:1"})
    assert _env(up) != env
    done = parley_local(up, "down", "--data-dir", "another")
    assert done.returncode == 0
    assert "has the settings of" in done.stdout
    assert _env(up) == env


def test_up_says_whose_address_file_it_takes(up: Path) -> None:
    env = _env(up)
    EnvFile(up, up / "another").write({"PARLEY_BROKER": "kafka://127.0.0.1:1"})
    done = parley_local(up, "up")
    assert f"had the settings of {up / 'another'}, which are replaced" in done.stdout
    assert _env(up) == env


def test_a_data_folder_that_cannot_be_made_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = parley_local(tmp_path, "up", "--data-dir", "file/below")
    assert done.returncode == 2
    assert "file/below" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_status_without_an_instance_says_how_to_start_one(tmp_path: Path) -> None:
    done = parley_local(tmp_path, "status")
    assert done.returncode == 1
    assert "parley local up" in done.stdout


def _suspend(where: Path) -> None:
    LocalInstance(where / ".parley/local", where)._parts(_ports(where))[1].suspend()


def _ports(where: Path) -> InstancePorts:
    ports = remembered_ports(where / ".parley/local")
    assert ports is not None
    return ports
