from __future__ import annotations

import pytest

from agents.comparing import rouge_l


@pytest.mark.parametrize(
    ("answer", "shadow", "score"),
    [
        ("Your order is on its way.", "your order is on its way", 1.0),
        ("", "", 1.0),
        ("", "hello", 0.0),
        ("one two", "three four", 0.0),
        ("police killed the gunman", "police kill the gunman", 0.75),  # an example of Lin (2004)
        ("police killed the gunman", "the gunman kill police", 0.5),
    ],
)
def test_rouge_l_is_the_longest_common_subsequence_of_words(answer: str, shadow: str, score: float) -> None:
    assert rouge_l(answer, shadow) == score
