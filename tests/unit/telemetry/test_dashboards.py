"""Dashboards and alerts against the metrics that are really exported: names, labels, and PromQL that parses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry

from app.gateway.edge.metrics import GatewayMetrics
from app.settings import Settings
from app.telemetry.telemetry import Telemetry

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "parley.json").read_text())
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that Prometheus, or its histograms, add."""

Exported = dict[str, set[str]]


def labels_of(collector: Any) -> Iterator[tuple[str, set[str]]]:
    """(family, labels) of a collector, also of those that have no sample yet."""
    declared = set(getattr(collector, "_labelnames", ()))
    for family in collector.collect():
        reported = {label for sample in family.samples for label in sample.labels}
        yield family.name, declared | reported | set(getattr(family, "_labelnames", ()))


def names_of(family: str, kind: str) -> list[str]:
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(kind, [""])
    return [family + suffix for suffix in suffixes]


@pytest.fixture(scope="module")
def exported() -> Exported:
    """The metrics of a worker and of a gateway, with their labels."""
    registries: list[CollectorRegistry] = [
        Telemetry(Settings(_env_file=None), lambda: None).registry,
        GatewayMetrics().registry,
    ]
    found: Exported = {}
    for registry in registries:
        kinds = {family.name: family.type for family in registry.collect()}
        for collector in list(registry._collector_to_names):
            for family, labels in labels_of(collector):
                for name in names_of(family, kinds[family]):
                    found[name] = labels | OF_PROMETHEUS
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def of_dashboard(expression: str) -> str:
    """The expression as Grafana sends it."""
    return re.sub(r"\$(job|instance)", ".*", expression.replace("$__rate_interval", "1m"))


EXPRESSIONS = {
    **{f"panel {p['title']}: {t['legendFormat']}": of_dashboard(t["expr"]) for p in panels() for t in p["targets"]},
    **{f"alert {rule['alert']}": rule["expr"] for rule in RULES},
}


def selectors(node: Any) -> Iterator[tuple[str, set[str]]]:
    """(metric, labels that are matched) of every selector."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name, {matcher.name for matcher in node.matchers.matchers}
    for name in ("lhs", "rhs", "expr", "vector_selector"):
        if (child := getattr(node, name, None)) is not None:
            yield from selectors(child)
    for child in getattr(node, "args", ()):
        yield from selectors(child)


def grouped(expression: str) -> set[str]:
    found = re.findall(r"\bby \(([^)]*)\)", expression)
    return {label.strip() for group in found for label in group.split(",")}


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_every_expression_parses_and_names_only_what_is_exported(where: str, exported: Exported) -> None:
    expression = EXPRESSIONS[where]
    found = list(selectors(promql_parser.parse(expression)))
    assert found
    known: set[str] = set()
    for metric, labels in found:
        assert metric in exported, f"{metric} is not exported"
        assert labels <= exported[metric], f"{metric} has no label {labels - exported[metric]}"
        known |= exported[metric]
    assert grouped(expression) <= known


def test_a_name_that_is_not_exported_is_found(exported: Exported) -> None:
    assert "parley:num_requests_runing" not in exported
    assert dict(selectors(promql_parser.parse('rate(x{a="b"}[5m]) / (y or vector(0))'))) == {"x": {"a"}, "y": set()}


NOT_SHOWN = re.compile("process_(virtual_memory|start_time|max_fds)|python_")
"""Figures of the interpreter."""


def test_everything_that_is_exported_is_on_a_panel(exported: Exported) -> None:
    shown = {
        metric
        for where, expression in EXPRESSIONS.items()
        if where.startswith("panel")
        for metric, _ in selectors(promql_parser.parse(expression))
    }
    families = {re.sub(r"_(bucket|count|sum)$", "", name): name for name in exported}
    unseen = {family for family in families if not any(one.startswith(family) for one in shown)}
    assert {family for family in unseen if not NOT_SHOWN.match(family)} == set()


def test_legends_name_labels_that_the_expression_keeps() -> None:
    for panel in panels():
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            kept = grouped(target["expr"])
            assert not kept or named <= kept, panel["title"]


def test_panels_have_ids_of_their_own_and_do_not_lie_over_each_other() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_every_alert_says_what_happens_and_what_to_do() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule["alert"]
        assert {"summary", "runbook"} <= set(rule["annotations"]), rule["alert"]
    reported = {rule["alert"] for rule in RULES}
    assert {"ParleyFirstTokenSlow", "ParleyLag", "ParleyErrors", "ParleyGpuMemory"} <= reported
    assert {"ParleyDeadLetters", "ParleyCommitLate"} <= reported


def test_the_scrape_configuration_reads_the_rules() -> None:
    configuration = read("prometheus/prometheus.yml")
    assert all((DEPLOY / "prometheus" / name).is_file() for name in configuration["rule_files"])


def test_compose_scrapes_parts_that_are_there_and_mounts_files_that_are_there() -> None:
    parts, beside = read("compose.yaml")["services"], read("compose.see.yaml")["services"]
    assert not set(parts) & set(beside)
    scraped = {
        target.partition(":")[0]
        for job in read("prometheus/prometheus.yml")["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    }
    assert scraped == {"worker", "gateway"} <= set(parts)
    mounts = [mount.split(":") for service in beside.values() for mount in service["volumes"]]
    assert all((DEPLOY / source).exists() for source, *_ in mounts)
    (provider,) = read("grafana/provisioning/dashboards/parley.yml")["providers"]
    assert any(target.startswith(provider["options"]["path"]) for _, target, *_ in mounts)
    (source,) = read("grafana/provisioning/datasources/parley.yml")["datasources"]
    assert source["url"].split("/")[2].partition(":")[0] in beside


def read(path: str) -> Any:
    return yaml.safe_load((DEPLOY / path).read_text())


def test_every_alert_reaches_a_receiver_whose_keys_compose_makes() -> None:
    manager, beside = read("prometheus/alertmanager.yml"), read("compose.see.yaml")
    (static,) = read("prometheus/prometheus.yml")["alerting"]["alertmanagers"][0]["static_configs"]
    (target,) = static["targets"]
    assert target.partition(":")[0] in beside["services"]
    routed = [manager["route"], *manager["route"]["routes"]]
    assert {route["receiver"] for route in routed} == {one["name"] for one in manager["receivers"]}
    files = set(re.findall(r"/run/secrets/(\w+)", (DEPLOY / "prometheus" / "alertmanager.yml").read_text()))
    given = beside["services"]["alertmanager"]["secrets"]
    assert files == {one["source"] for one in given} == set(beside["secrets"])
    assert all(one["mode"] == 0o444 for one in given), "of root, with 0400, nobody cannot read them"


AMTOOL = os.environ.get("AMTOOL") or shutil.which("amtool")


@pytest.mark.skipif(AMTOOL is None, reason="amtool is not installed: neither AMTOOL nor the PATH names it")
@pytest.mark.parametrize(("severity", "receiver"), [("page", "pages"), ("ticket", "tickets")])
def test_amtool_finds_who_gets_an_alert(severity: str, receiver: str) -> None:
    options = ["--config.file", "alertmanager.yml", f"--verify.receivers={receiver}", f"severity={severity}"]
    for command in (["check-config", "alertmanager.yml"], ["config", "routes", "test", *options]):
        ran = subprocess.run(
            [str(AMTOOL), *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False, timeout=60
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_tests_of_rules_name_alerts_that_are_there() -> None:
    tested = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text())
    named = {one["alertname"] for test in tested["tests"] for one in test["alert_rule_test"]}
    assert named <= {rule["alert"] for rule in RULES}


PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: neither PROMTOOL nor the PATH names it")
@pytest.mark.parametrize("command", ["check config prometheus.yml", "test rules alerts_test.yml"])
def test_promtool_finds_the_rules_right(command: str) -> None:
    ran = subprocess.run(
        [str(PROMTOOL), *command.split()],
        cwd=DEPLOY / "prometheus",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


ROOT = DEPLOY.parent
TEXTS = (".md", ".yml", ".yaml", ".tpl", ".txt", ".json", ".toml", ".sql")
NAME = re.compile(r"(?<![\w/.])(parley:[a-z][a-z0-9_]*|parley_gateway_[a-z][a-z0-9_]*)(\*?)")
HISTORY = {"CHANGELOG.md"}


def named_in_texts() -> Iterator[tuple[str, str, bool]]:
    """(file, metric, whether it stands for all that begin so) of each document, alert, dashboard, chart and setting."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for file in listed.splitlines():
        if file.endswith(TEXTS) and file not in HISTORY:
            for found in NAME.finditer((ROOT / file).read_text()):
                yield file, found[1], bool(found[2])


def test_every_metric_that_a_text_names_is_exported(exported: Exported) -> None:
    current = {*exported, *(name.removesuffix("_bucket") for name in exported)}
    named = list(named_in_texts())
    assert {"docs/operations/upgrades.md", "deploy/helm/parley/templates/scaling.yaml"} <= {file for file, *_ in named}
    unknown = [
        f"{file}: {metric}"
        for file, metric, is_prefix in named
        if metric not in current and not (is_prefix and any(name.startswith(metric) for name in current))
    ]
    assert unknown == []
