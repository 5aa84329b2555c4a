from __future__ import annotations

from typing import Any, cast

import pytest

from app.search.milvus import Milvus
from app.search.query import HistorySearch, Hit, Query
from app.search.related import RelatedTurns


class Odd:
    """Hits whose rows are of another form."""

    async def search(self, _query: Query) -> list[Hit]:
        return [cast(Hit, None)]

    async def call(self, *_arguments: Any, **_options: Any) -> list[dict[str, Any]]:
        return []


async def test_rows_of_any_form_are_no_related_turns_and_end_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    related = RelatedTurns(cast(HistorySearch, Odd()), cast(Milvus, Odd()), "turns")
    query = Query(user_id="ann", text="a secret question", limit=2)
    assert await related.find(query, 5) == []
    assert related.stats.outcomes["away"] == 1
    assert "AttributeError" in caplog.text
    assert "secret" not in caplog.text
