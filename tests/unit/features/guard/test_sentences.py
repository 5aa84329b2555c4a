from __future__ import annotations

from app.features.guard.sentences import Sentences
from models.interface.generation import Delta


def leaving(written: str, *texts: str) -> list[str]:
    """What leaves at which delta, and the rest behind a bar."""
    sentences = Sentences(written)
    found = []
    for index, text in enumerate(texts):
        ready = sentences.add(Delta(index, (index,), text))
        found.append("" if ready is None else ready.text)
    rest = sentences.rest()
    return [*found, "|", "" if rest is None else rest.text]


def test_a_sentence_leaves_once_the_next_one_begins() -> None:
    assert leaving("", "It", " is", " so.", " And", " more") == ["", "", "", "It is so.", "", "|", " And more"]


def test_a_number_is_no_end_of_a_sentence() -> None:
    assert leaving("", "It is 3.", "5 km.", " Far") == ["", "", "It is 3.5 km.", "|", " Far"]


def test_a_line_and_a_sentence_of_chinese_leave_at_once() -> None:
    assert leaving("", "1. Open it\n", "好。") == ["1. Open it\n", "好。", "|", ""]


def test_a_quoted_sentence_leaves_with_its_closing_quote() -> None:
    assert leaving("", 'He said "no."', " Then") == ["", 'He said "no."', "|", " Then"]


def test_deltas_leave_whole_and_keep_their_tokens() -> None:
    sentences = Sentences("")
    assert sentences.add(Delta(4, (7, 8), "One. Tw")) is None
    ready = sentences.add(Delta(6, (9,), "o.\n"))
    assert ready == Delta(4, (7, 8, 9), "One. Two.\n")


def test_a_long_sentence_leaves_in_pieces_that_are_judged_with_the_piece_before() -> None:
    sentences = Sentences("")
    first = sentences.add(Delta(0, (1,), "a" * 400))
    assert sentences.to_judge(first) == "a" * 400
    second = sentences.add(Delta(1, (2,), "b" * 400))
    assert sentences.to_judge(second) == "a" * 400 + "b" * 400


def test_a_resumed_answer_judges_the_sentence_in_which_it_goes_on() -> None:
    assert Sentences("Done. You are").to_judge(Delta(0, (1,), " late.")) == "Done. You are late."
    assert Sentences("Done.").to_judge(Delta(0, (1,), " Late.")) == " Late."
