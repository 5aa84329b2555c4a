from __future__ import annotations

import pytest
from parley_quantize.quality import MOST_WORDS, rouge_l


@pytest.mark.parametrize(
    ("one", "other", "score"),
    [
        ("Your order is on its way.", "your order is on its way", 1.0),
        ("a b c d", "A B c d", 1.0),
        ("a b c d", "x y", 0.0),
        ("police killed the gunman", "police kill the gunman", 0.75),  # the example of the paper
        ("police killed the gunman", "the gunman kill police", 0.5),
        ("", "", 1.0),
        ("a", "", 0.0),
    ],
)
def test_rouge_l_is_the_f_measure_of_the_longest_common_subsequence_of_words(
    one: str, other: str, score: float
) -> None:
    assert rouge_l(one, other) == score
    assert rouge_l(other, one) == score


def test_only_so_many_words_are_compared() -> None:
    same, other = ("x " * MOST_WORDS, "y " * 200_000)
    assert rouge_l(same + other, same + "z " * 200_000) == 1.0
    assert rouge_l("x" * 10_000_000, "y" * 10_000_000) == 0.0
