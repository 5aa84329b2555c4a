from __future__ import annotations

import re

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from app.wire.ids import is_request_id, new_request_id, partition_for, seed_for
from app.wire.request import INT64
from tests.unit.wire import records


def test_new_request_ids_are_uuids_of_version_7_and_grow() -> None:
    made = [new_request_id() for _ in range(1000)]
    assert sorted(set(made)) == made
    assert all(
        re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", one) for one in made
    )
    assert all(is_request_id(one) for one in made)


@given(user_id=records.name, partitions=st.integers(1, 500))
def test_partition_is_the_one_that_the_producer_chooses(user_id: str, partitions: int) -> None:
    everything = list(range(partitions))
    assert partition_for(user_id, partitions) == DefaultPartitioner()(user_id.encode(), everything, everything)


@pytest.mark.parametrize(
    ("user_id", "hashed"), [("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536)]
)
def test_partition_is_that_of_kafkas_java_clients(user_id: str, hashed: int) -> None:
    assert partition_for(user_id, 4096) == (hashed & 0x7FFFFFFF) % 4096


@given(request_id=records.request_id)
def test_seed_is_a_valid_seed_and_always_the_same(request_id: str) -> None:
    assert seed_for(request_id) == seed_for(request_id)
    assert seed_for(request_id) in INT64


def test_seed_does_not_change_between_versions() -> None:
    assert seed_for("r-1") == 4525224853126370951
