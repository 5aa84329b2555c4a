"""What stands in the compose file, the container files and the chart exists: settings, services, images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.local.server_properties import Voter, server_properties
from app.settings import Settings
from app.settings.names import PREFIX, RENAMED

DEPLOY = Path(__file__).parents[3] / "deploy"
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields} | {*RENAMED}
VARIABLES = {"PARLEY_KEY"}
"""Of the compose file itself."""
FILES = [
    DEPLOY / "compose.yaml",
    *(DEPLOY / "container").iterdir(),
    *(file for file in (DEPLOY / "helm").rglob("*") if file.is_file()),
]


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_setting_that_is_named_exists(file: Path) -> None:
    assert set(re.findall(rf"\b{PREFIX}[A-Z_]+", file.read_text())) - VARIABLES <= SETTINGS


def test_the_parts_of_compose_wait_for_parts_that_are_there() -> None:
    for service in services().values():
        assert set(service.get("depends_on", {})) <= set(services())
    assert {"kafka", "milvus", "topics", "worker", "gateway"} == set(services())


def test_the_broker_of_compose_ends_open_transactions_as_soon_as_a_local_one() -> None:
    me = Voter(1, 9092, 9093)
    name = "transaction.max.timeout.ms"
    local = server_properties(me, (me,), Path("data"))[name]
    assert str(services()["kafka"]["environment"]["KAFKA_TRANSACTION_MAX_TIMEOUT_MS"]) == local


def test_all_parts_but_the_job_come_back_after_a_reboot() -> None:
    restarts = {name: service["restart"] for name, service in services().items()}
    assert restarts.pop("topics") == "on-failure"
    assert set(restarts.values()) == {"unless-stopped"}
    beside = yaml.safe_load((DEPLOY / "compose.see.yaml").read_text())["services"]
    assert {service["restart"] for service in beside.values()} == {"unless-stopped"}


def test_a_model_and_a_policy_of_ones_own_need_no_other_file() -> None:
    described = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for name in ("worker", "gateway", "topics"):
        service = described["services"][name]
        assert service["environment"]["PARLEY_MODEL"] == "${PARLEY_MODEL:-demo}"
        assert service["environment"]["PARLEY_POLICY"] == "${PARLEY_POLICY:-}", "empty is none"
        assert {"${MODELS:-models}:/models:ro", "${POLICIES:-policies}:/etc/parley:ro"} <= set(service["volumes"])
    assert {"models", "policies"} <= set(described["volumes"])


def test_no_image_floats() -> None:
    for service in services().values():
        assert service["image"] == "parley" or ":" in service["image"]
