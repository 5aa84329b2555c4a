"""compose.see.yaml, started: targets are up, rules are loaded, and an alert arrives at its receiver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.deploy.see import PROGRAMS
from tests.unit.telemetry.test_dashboards import RULES

ROOT = Path(__file__).parents[3]
pytestmark = [
    pytest.mark.slow,  # the alert is due after two minutes
    pytest.mark.skipif(None in PROGRAMS.values(), reason="Prometheus and Alertmanager are not on the PATH"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a network"),
]


@pytest.mark.timeout(900)
def test_what_compose_see_describes_sees_that_no_worker_is_left(tmp_path: Path) -> None:
    command = ["unshare", "--net", "--mount", sys.executable, "-m", "tests.integration.deploy.see", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    seen = json.loads(ran.stdout.splitlines()[-1])
    assert seen["targets"] == {"parley-worker": "up", "parley-gateway": "up"}
    assert set(seen["rules"]) >= {rule["alert"] for rule in RULES}
    assert [one["url"] for one in seen["managers"]["activeAlertmanagers"]] == ["http://alertmanager:9093/api/v2/alerts"]
    page = seen["page"]
    assert page["routing_key"] == "pagerduty_key"
    assert page["payload"]["summary"] == "No worker answers any partition"
    assert "exit code" in page["payload"]["custom_details"]["runbook"]
