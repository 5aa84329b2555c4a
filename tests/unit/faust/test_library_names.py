"""Every name of Faust, mode and aiokafka that the application relies on exists in the installed versions.

Their objects are `Any` to mypy, so nothing else notices a name that they do not have before it is used.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faust
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer import fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import Assignment, SubscriptionState, TopicPartitionState
from aiokafka.protocol.fetch import FetchRequest
from faust.transport.drivers import aiokafka as driver

from app.faust import assignor, consumer, tuning
from app.kafka import fetch_session, readable, reading, shared_metadata

APP = Path(__file__).parents[3] / "app"
FOLDERS = [APP / "faust", APP / "kafka"]
OVERRIDING = [
    consumer._ConsumerInLoop,
    consumer._Consumer,
    consumer.App,
    tuning.SameLoop,
    tuning.QuickDelivery,
    tuning.NoGaps,
    tuning.NoTables,
    assignor.Assignor,
    reading.ReadableRecords,
    readable.ReadableConsumer,
    fetch_session._SessionFetch,
    shared_metadata.SharingConsumer,
    shared_metadata.SharingProducer,
]
OWN = {
    "leave_group", "joined_as", "coordination_ended", "serve",  # of Faust's classes
    "_is_tried_again", "_is_first_warning", "_rescued", "_reads", "_last_offset", "_delivered",  # of `PartitionRecords`
}  # fmt: skip
PRIVATE = {
    AIOKafkaConnection: {"_protocol"},
    AIOKafkaConsumer: {
        "_client", "_coordinator", "_fetcher", "_isolation_level", "_partition_assignment_strategy", "_subscription",
    },
    SubscriptionState: {"subscription"},
    Assignment: {"state_value", "tps"},
    TopicPartitionState: {"has_valid_position", "highwater", "lso", "paused", "position"},
    GroupCoordinator: {
        "_group_instance_id", "_coordination_task", "coordinator_id", "member_id", "close", "fetch_committed_offsets",
    },
    fetcher.Fetcher: {"_fetch_min_bytes", "_fetch_max_wait_ms"},
    FetchRequest: {"_topics"},
    driver.AIOKafkaConsumerThread: {"_consumer"}, driver.Consumer: {"_thread", "on_buffer_full", "on_buffer_drop"},
    faust.App: {"rebalancing"},
}  # fmt: skip
"""By class; `shared_metadata` has a test of its names of the client."""
HOLDERS = {
    "consumer": (AIOKafkaConsumer, driver.Consumer),
    "coordinator": (GroupCoordinator,),
    "_coordinator": (GroupCoordinator,),
    "_fetcher": (fetcher.Fetcher,),
    "state": (TopicPartitionState,),
}
"""Of which classes a variable or an attribute of that name is, in these folders."""


@pytest.mark.parametrize("overriding", OVERRIDING)
def test_what_is_overridden_exists(overriding: type[Any]) -> None:
    library = [one for one in overriding.__mro__ if not one.__module__.startswith("app.")]
    own = {name for name, value in vars(overriding).items() if inspect.isfunction(value)} - OWN
    assert own, "nothing is overridden"
    for name in own:
        assert any(name in vars(one) for one in library), f"{overriding.__name__}.{name} overrides nothing"


@pytest.mark.parametrize("owner", PRIVATE)
def test_what_is_used_exists(owner: type[Any]) -> None:
    assert PRIVATE[owner] <= _names_of(owner), PRIVATE[owner] - _names_of(owner)


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_is_used_of_a_variable_exists(holder: str) -> None:
    paths = [path for folder in FOLDERS for path in folder.glob("*.py")]
    nodes = [node for path in paths for node in _attributes(ast.parse(path.read_text()))]
    used = {node.attr for node in nodes if holder == getattr(node.value, "id", getattr(node.value, "attr", ""))}
    assert used - set().union(*map(_names_of, HOLDERS[holder])) - OWN == set()


@pytest.mark.parametrize("overriding", OVERRIDING)
def test_what_a_subclass_uses_of_itself_exists(overriding: type[Any]) -> None:
    used = {node.attr for node in _attributes(_tree_of(overriding)) if _is_self(node.value) or _is_super(node.value)}
    assert used <= _names_of(overriding), used - _names_of(overriding)


def test_the_replaced_names_exist() -> None:
    assert inspect.isclass(fetcher.MemoryRecords)
    assert issubclass(fetcher.PartitionRecords, reading.ReadableRecords.__mro__[1])


def test_no_private_name_is_used_that_is_not_checked_here() -> None:
    checked = {name for names in PRIVATE.values() for name in names}
    used = {name for folder in FOLDERS for path in folder.glob("*.py") for name in _private_names(path)}
    assert used - checked <= {"_topics", "_asdict"}, used - checked


def _names_of(owner: type[Any]) -> set[str]:
    """Of its class and those it inherits from: in the class, and what their methods assign to `self`."""
    names: set[str] = set()
    for one in owner.__mro__:
        names |= {*vars(one), *vars(one).get("__annotations__", {})}
        stores = [node for node in _attributes(_tree_of(one)) if isinstance(node.ctx, ast.Store)]
        names |= {node.attr for node in stores if _is_self(node.value)}
    return names


def _private_names(path: Path) -> Iterator[str]:
    """Of objects that are not `self`, in one file."""
    for node in _attributes(ast.parse(path.read_text())):
        is_private = node.attr.startswith("_") and not node.attr.startswith("__")
        if is_private and not _is_self(node.value) and not _is_super(node.value):
            yield node.attr


def _tree_of(owner: type[Any]) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError):  # built in
        return ast.Module([], [])


def _attributes(tree: ast.AST) -> list[ast.Attribute]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
