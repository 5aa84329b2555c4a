from __future__ import annotations

import time

import click
import pytest

from app.commands.moment import Moment, check_period
from app.commands.terminal import WrongUseError


def moment(text: str) -> int:
    return Moment().convert(text, None, None)


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400), ("36h", 129_600), ("7d", 604_800), ("2w", 1_209_600)])
def test_so_long_ago(text: str, seconds: int) -> None:
    before = time.time_ns() // 1_000_000
    ago = moment(text)
    assert before <= ago + seconds * 1000 <= time.time_ns() // 1_000_000


def test_date_and_time_with_and_without_a_zone() -> None:
    assert moment("2024-05-01T09:30+02:00") == 1_714_548_600_000
    assert moment("2024-05-01T07:30Z") == 1_714_548_600_000
    local = time.mktime((2024, 5, 1, 0, 0, 0, 0, 0, -1))
    assert moment("2024-05-01") == int(local * 1000)


@pytest.mark.parametrize("text", ["yesterday", "", "5", "5y", "2024-13-01", "99999999d"])
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(click.BadParameter, match="2024-05-01"):
        moment(text)


@pytest.mark.parametrize("until", [1_000, 999])
def test_a_period_without_any_time_is_refused(until: int) -> None:
    with pytest.raises(WrongUseError, match="--until must be later than --since"):
        check_period(1_000, until)


@pytest.mark.parametrize(("since", "until"), [(1_000, 1_001), (1_000, None), (None, 1_000), (None, None)])
def test_a_period_may_be_open(since: int | None, until: int | None) -> None:
    check_period(since, until)


@pytest.mark.parametrize("text", ["99999d", "999999w", "1901-01-01", "0001-01-02T00:00:00+00:00"])
def test_a_time_before_all_records_is_the_first_one(text: str) -> None:
    assert Moment().convert(text, None, None) == 0
