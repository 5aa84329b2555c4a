from __future__ import annotations

from typing import cast

import pytest

from app.features.recall.related import RelatedTurns
from app.search.vector_store import Hit, Query, VectorStore
from tests.integration.search.history import Hashed


class Odd:
    """Hits whose rows are of another form."""

    async def search(self, *_arguments: object) -> list[Hit]:
        return [cast(Hit, None)]


async def test_rows_of_any_form_are_no_related_turns_and_end_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    related = RelatedTurns(cast(VectorStore, Odd()), Hashed())
    query = Query(user_id="ann", text="a secret question", limit=2)
    assert await related.find(query, 5) == []
    assert related.stats.outcomes["away"] == 1
    assert "AttributeError" in caplog.text
    assert "secret" not in caplog.text
