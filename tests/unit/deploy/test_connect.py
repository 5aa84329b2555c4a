"""The connectors' configurations, and ClickHouse's tables in a real ClickHouse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chdb import session

from app.local.jars import KAFKA_VERSION, read_checksums
from app.settings.kafka import TopicName
from app.wire.codec import encode
from app.wire.erasure import Erasure
from app.wire.schemas import RECORDS
from tests.analytics.jars import CONNECT as CONNECT_JARS
from tests.analytics.jars import MIRROR
from tests.analytics.records import NOW, turn_of

CONNECT = Path(__file__).parents[3] / "deploy" / "connect"
CONNECTORS = sorted(CONNECT.glob("*/connector.json"))


def test_connect_and_mirrormaker_are_of_the_brokers_version() -> None:
    checksums = read_checksums(CONNECT_JARS) | read_checksums(MIRROR)
    assert all(re.fullmatch(r"[0-9a-f]{64}", checksum) for checksum in checksums.values())
    for artifact in ("connect-runtime", "connect-json", "connect-transforms", "connect-mirror"):
        assert f"org/apache/kafka/{artifact}/{KAFKA_VERSION}/{artifact}-{KAFKA_VERSION}.jar" in checksums


@pytest.mark.parametrize("file", CONNECTORS, ids=lambda file: file.parent.name)
def test_a_connector_reads_topics_that_exist_and_what_is_committed(file: Path) -> None:
    config = json.loads(file.read_text())["config"]
    topics = config["topics"].split(",")
    assert set(topics) <= {name.value for name in TopicName}
    assert set(topics) <= set(RECORDS), "their schemas are published"
    assert config["consumer.override.isolation.level"] == "read_committed"


@pytest.mark.parametrize("file", CONNECTORS, ids=lambda file: file.parent.name)
def test_a_connector_names_no_secret(file: Path) -> None:
    config = json.loads(file.read_text())["config"]
    secrets = {name: value for name, value in config.items() if re.search(r"password|secret|key\.id", name)}
    assert all(re.fullmatch(r"\$\{env:PARLEY_\w+\}", value) for value in secrets.values()), secrets


class ClickHouse:
    def __init__(self, folder: Path) -> None:
        self._session = session.Session(str(folder))
        self._session.query("CREATE DATABASE parley")
        self._session.query("USE parley")

    def run(self, file: str) -> None:
        text = "\n".join(line for line in (CONNECT / "clickhouse" / file).read_text().splitlines() if line[:2] != "--")
        for statement in text.split(";"):
            if statement.strip():
                self._session.query(statement)

    def write(self, table: str, record: Any) -> None:
        """As the connector does: fields that the table lacks are skipped."""
        settings = "SETTINGS input_format_skip_unknown_fields=1, input_format_null_as_default=1"
        value = encode(record)[0].decode()
        self._session.query(f"INSERT INTO {table} {settings} FORMAT JSONEachRow {value}")

    def rows(self, query: str) -> list[list[Any]]:
        text = str(self._session.query(query, "JSONCompactEachRow"))
        return [json.loads(line) for line in text.splitlines()]

    def close(self) -> None:
        self._session.close()


@pytest.fixture
def clickhouse(tmp_path: Path) -> Iterator[ClickHouse]:
    started = ClickHouse(tmp_path / "clickhouse")
    started.run("tables.sql")
    yield started
    started.close()


def test_clickhouse_shows_each_turn_once_and_none_that_was_erased(clickhouse: ClickHouse) -> None:
    for _ in range(2):
        clickhouse.write("turns", turn_of("ann", "r1"))
        clickhouse.write("turns", turn_of("bob", "r1", guard=("injection",)))
    shown = (
        "SELECT user_id, request_id, toInt64(tupleElement(usage, 'prompt_tokens')), guard FROM turns_now ORDER BY ALL"
    )
    assert [[*row[:2], int(row[2]), row[3]] for row in clickhouse.rows(shown)] == [
        ["ann", "r1", 3, []],
        ["bob", "r1", 3, ["injection"]],
    ]
    clickhouse.write("erasures", Erasure(user_id="ann", erased_at=NOW + 5, created_at=NOW + 5))
    clickhouse.write("turns", turn_of("ann", "late", NOW + 5))
    clickhouse.write("turns", turn_of("ann", "new", NOW + 6))
    kept = [["ann", "new"], ["bob", "r1"]]
    assert clickhouse.rows("SELECT user_id, request_id FROM turns_now ORDER BY ALL") == kept
    clickhouse.run("erase.sql")
    assert clickhouse.rows("SELECT DISTINCT user_id, request_id FROM turns ORDER BY ALL") == kept


def test_clickhouse_shows_no_turn_of_an_erased_conversation_and_those_of_others(clickhouse: ClickHouse) -> None:
    for name in ("", "c", "d"):
        clickhouse.write("turns", turn_of("ann", f"of-{name}", conversation_id=name))
    for name in ("", "c"):
        erasure = Erasure(user_id="ann", erased_at=NOW + 5, created_at=NOW + 5, conversation_id=name)
        clickhouse.write("erasures", erasure)
    clickhouse.write("turns", turn_of("ann", "late", NOW + 5, conversation_id="c"))
    clickhouse.write("turns", turn_of("ann", "new", NOW + 6, conversation_id="c"))
    clickhouse.run("tables.sql")
    kept = [["new"], ["of-d"]]
    assert clickhouse.rows("SELECT request_id FROM turns_now ORDER BY ALL") == kept
    clickhouse.run("erase.sql")
    assert clickhouse.rows("SELECT DISTINCT request_id FROM turns ORDER BY ALL") == kept
    clickhouse.write("erasures", Erasure(user_id="ann", erased_at=NOW + 9, created_at=NOW + 9))
    assert clickhouse.rows("SELECT request_id FROM turns_now ORDER BY ALL") == []
