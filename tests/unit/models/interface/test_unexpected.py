"""What the log says of an exception that no code expects."""

from __future__ import annotations

import json

import pytest

from models.interface.unexpected import type_and_line

SECRET = "the operator's secret system prompt"


def test_the_last_line_of_this_project_is_named_and_no_text() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(SECRET)
    line = caught.traceback[0].lineno + 1
    function = "test_the_last_line_of_this_project_is_named_and_no_text"
    assert type_and_line(caught.value) == (
        f"JSONDecodeError in tests/unit/models/interface/test_unexpected.py:{line} ({function})"
    )


def test_what_passed_no_line_of_this_project_names_the_line_that_raised_it() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(SECRET)
    error = caught.value.with_traceback(caught.tb.tb_next)
    assert type_and_line(error) == f"JSONDecodeError in decoder.py:{caught.traceback[-1].lineno + 1} (raw_decode)"


def test_what_was_never_raised_is_its_type() -> None:
    assert type_and_line(KeyError(SECRET)) == "KeyError"
