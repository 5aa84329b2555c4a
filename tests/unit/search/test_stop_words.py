from __future__ import annotations

import pytest

from app.search.stop_words import without_stop_words


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("A parcel that has NOT come", "parcel come"),
        ("Where is order_4711, don’t you know?", "order 4711 know"),
        ("what is it", "what is it"),
        ("", ""),
        ("wo ist mein Paket", "wo ist mein Paket"),
    ],
)
def test_other_words_are_left_in_their_order(text: str, others: str) -> None:
    assert without_stop_words(text) == others
