"""The tables and triggers of PostgreSQL alone, without Connect."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.wire.codec import encode
from app.wire.erasure import Erasure
from tests.analytics.connect_node import DEPLOY
from tests.analytics.postgresql_node import PostgresNode
from tests.analytics.records import NOW, turn_of

OFFSETS = itertools.count()
SECRET = "my card is 4111"


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresNode]:
    node = PostgresNode()
    node.start()
    try:
        node.run(DEPLOY / "postgresql" / "tables.sql")
        yield node
    finally:
        node.close()


def ingest(postgresql: PostgresNode, topic: str, record: str) -> int:
    """As the connector inserts it; returns the record's offset."""
    offset = next(OFFSETS)
    with postgresql.connect() as connection:
        connection.execute("insert into parley.ingest values (%s, 0, %s, %s)", (topic, offset, record))
    return offset


def erase(postgresql: PostgresNode, user: str) -> None:
    ingest(postgresql, "erasures", json.dumps({"user_id": user, "erased_at": 10, "created_at": 10}))


def rejected(postgresql: PostgresNode, offset: int) -> tuple[str | None, str]:
    query = "select record, reason from parley.rejected where kafka_offset = %s"
    ((record, reason),) = postgresql.rows(query, offset)
    return record, reason


def broken(user: str) -> str:
    """A turn that no row can hold."""
    return json.dumps({"user_id": user, "prompt": SECRET, "created_at": SECRET})


def torn(user: str) -> str:
    return broken(user)[:-1]


@pytest.mark.parametrize("made", [broken, torn])
@pytest.mark.parametrize("is_late", [False, True])
def test_an_erasure_reaches_what_was_rejected(
    postgresql: PostgresNode, made: Callable[[str], str], is_late: bool
) -> None:
    user = f"tenant/{made.__name__}-{is_late}"
    if is_late:
        erase(postgresql, user)
    offset, other = (ingest(postgresql, "x-turns", made(one)) for one in (user, "tenant/other"))
    if not is_late:
        assert rejected(postgresql, offset)[0] == made(user)
        erase(postgresql, user)
    assert rejected(postgresql, offset) == (None, "its user or a conversation was erased")
    assert rejected(postgresql, other)[0] == made("tenant/other")


def test_tables_of_an_older_version_get_what_is_new(postgresql: PostgresNode, tmp_path: Path) -> None:
    older = tmp_path / "older.sql"
    older.write_text(
        "drop index parley.rejected_user; alter table parley.rejected drop column user_id cascade;"
        "delete from parley.erasures where conversation_id is not null; drop index parley.erasures_about;"
        "alter table parley.erasures drop column conversation_id;"
        "alter table parley.erasures add constraint erasures_pkey primary key (user_id);"
    )
    postgresql.run(older)
    postgresql.run(DEPLOY / "postgresql" / "tables.sql")
    offset = ingest(postgresql, "turns", broken("after"))
    erase(postgresql, "after")
    assert rejected(postgresql, offset) == (None, "its user or a conversation was erased")


def test_an_erasure_of_a_conversation_deletes_its_turns_alone_and_refuses_late_ones(postgresql: PostgresNode) -> None:
    def turns() -> list[tuple[str]]:
        return postgresql.rows("select request_id from parley.turns where user_id = 'cy' order by 1")

    for request, conversation in (("old", "c"), ("other", "d")):
        ingest(postgresql, "turns", encode(turn_of("cy", request, conversation_id=conversation))[0].decode())
    for at in (NOW + 10, NOW + 5):
        erasure = Erasure(user_id="cy", erased_at=at, created_at=at, conversation_id="c")
        ingest(postgresql, "erasures", encode(erasure)[0].decode())
    for request, at in (("late", NOW + 9), ("new", NOW + 11)):
        ingest(postgresql, "turns", encode(turn_of("cy", request, at, conversation_id="c"))[0].decode())
    assert turns() == [("new",), ("other",)]
    ingest(postgresql, "erasures", encode(Erasure(user_id="cy", erased_at=NOW + 20, created_at=NOW + 20))[0].decode())
    assert turns() == []
    assert postgresql.rows("select count(*) from parley.erasures where user_id = 'cy'") == [(2,)]
