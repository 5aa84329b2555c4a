"""What a commit of a worker means for the estimate of a gateway that has just started."""

from __future__ import annotations

import pytest
from aiokafka.structs import OffsetAndMetadata

from app.delivery.commits.handover import Handover, encode_metadata, served
from app.gateway.callers.backlog import finished
from app.gateway.callers.estimate import Sample, WaitEstimate


def committed(head: int, *ahead: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(head, encode_metadata(Handover(head, epoch=1, ahead=ahead)))


def test_one_answer_that_has_waited_for_long_is_no_backlog_for_a_gateway_that_starts() -> None:
    """Offset 0 waits for a tool; 5 others a second are answered at once; the gateway starts after 300 s."""
    made = WaitEstimate(64)
    for at in range(300, 360, 2):
        end = 5 * at
        made.add(Sample(at, {0: end}, {0: finished(committed(0, *range(1, end)), 0)}, {0: 5 * (at - 300)}))
        made.users(0).change("nina", 5, at)
        assert made.wait_s(0, "nina", at) == 0


@pytest.mark.parametrize(
    ("commit", "first", "expected"),
    [
        (None, 7, 7),
        (OffsetAndMetadata(-1, ""), 7, 7),
        (OffsetAndMetadata(5, "written by hand"), 0, 5),
        (OffsetAndMetadata(5, None), 0, 5),
        (committed(5), 0, 5),
        (committed(5, 6, 8, 9), 0, 8),
        (committed(5, 6, 8, 9), 7, 7),
    ],
)
def test_finished_counts_what_stands_before_and_behind_the_committed_offset(
    commit: OffsetAndMetadata | None, first: int, expected: int
) -> None:
    assert finished(commit, first) == expected


def test_models_are_those_of_all_owners_whoever_else_has_set_an_offset() -> None:
    names = (("demo", "small"), ("demo", "new"))
    owners = [OffsetAndMetadata(5, encode_metadata(Handover(5, models=one))) for one in names]
    foreign = [OffsetAndMetadata(5, "written by hand"), OffsetAndMetadata(5, None), OffsetAndMetadata(-1, "")]
    assert served([*foreign, *owners]) == ["demo", "small", "new"]
    assert served(foreign) == []
