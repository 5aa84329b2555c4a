from __future__ import annotations

import pytest

from app.demo.script import SEARCH, SPEAKERS, Speaker


@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda speaker: speaker.user_id)
def test_what_has_to_be_remembered_was_told_in_an_earlier_turn_and_is_not_in_the_question(speaker: Speaker) -> None:
    remembered = [(number, line) for number, line in enumerate(speaker.lines) if line.expected]
    assert remembered
    for number, line in remembered:
        assert line.expected is not None
        assert line.expected not in line.prompt
        assert any(line.expected in earlier.prompt for earlier in speaker.lines[:number])


def test_the_search_shares_no_word_of_weight_with_what_it_has_to_find() -> None:
    speaker = next(speaker for speaker in SPEAKERS if speaker.user_id == SEARCH.user_id)
    meant = speaker.lines[SEARCH.line].prompt

    def words(text: str) -> set[str]:
        return {word.strip("?.,").lower() for word in text.split() if len(word) > 3}

    assert not words(SEARCH.query) & words(meant)
