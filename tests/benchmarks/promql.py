"""As much of PromQL as the dashboard needs, over scrapes that lie in a list: one a second, the newest last."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import promql_parser
from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]


@dataclass(frozen=True, slots=True)
class Scrape:
    """Every sample at a time (Unix seconds), by its name."""

    at: float
    samples: Mapping[str, Vector]


def scraped(at: float, texts: Mapping[str, str]) -> Scrape:
    """What the targets expose; `texts` are their expositions by address."""
    samples: dict[str, Vector] = {}
    for address, text in texts.items():
        added = {"job": "parley", "instance": address}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, {})[frozenset((sample.labels | added).items())] = sample.value
    return Scrape(at, samples)


def evaluate(expression: str, scrapes: Sequence[Scrape]) -> Vector:
    """The value of each series at the newest scrape; a NaN is left out."""
    found = _value(promql_parser.parse(expression), scrapes)
    assert isinstance(found, dict), "the expression is a number"
    return {labels: value for labels, value in found.items() if value == value}


def _value(node: Any, scrapes: Sequence[Scrape]) -> Vector | float:
    match type(node).__name__:
        case "NumberLiteral":
            return float(node.val)
        case "ParenExpr":
            return _value(node.expr, scrapes)
        case "VectorSelector":
            return _selected(node, scrapes[-1])
        case "AggregateExpr":
            return _aggregated(node, scrapes)
        case "BinaryExpr":
            return _quotient(node, scrapes)
        case "Call":
            return _called(node, scrapes)
    raise NotImplementedError(type(node).__name__)


def _selected(selector: Any, scrape: Scrape) -> Vector:
    def fits(labels: Labels) -> bool:
        exposed = dict(labels)
        for matcher in selector.matchers.matchers:
            value, wanted = exposed.get(matcher.name, ""), matcher.value
            same = re.fullmatch(wanted, value) if "Re" in str(matcher.op) else value == wanted
            if bool(same) is ("Not" in str(matcher.op)):
                return False
        return True

    return {labels: value for labels, value in scrape.samples.get(selector.name, {}).items() if fits(labels)}


def _aggregated(node: Any, scrapes: Sequence[Scrape]) -> Vector:
    kept = set(node.modifier.labels) if node.modifier is not None else set()
    groups: dict[Labels, list[float]] = {}
    inner = _value(node.expr, scrapes)
    assert isinstance(inner, dict)
    for labels, value in inner.items():
        groups.setdefault(frozenset(pair for pair in labels if pair[0] in kept), []).append(value)
    combine: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max}
    return {labels: combine[str(node.op)](values) for labels, values in groups.items()}


def _quotient(node: Any, scrapes: Sequence[Scrape]) -> Vector:
    assert str(node.op) == "/"
    above, below = _value(node.lhs, scrapes), _value(node.rhs, scrapes)
    assert isinstance(above, dict)
    assert isinstance(below, dict)
    return {labels: value / below[labels] for labels, value in above.items() if below.get(labels)}


def _called(node: Any, scrapes: Sequence[Scrape]) -> Vector:
    if node.func.name == "histogram_quantile":
        share, buckets = node.args[0].val, _value(node.args[1], scrapes)
        assert isinstance(buckets, dict)
        return _quantiles(share, buckets)
    selector = node.args[0]
    seconds = selector.range.total_seconds()
    window = [scrape for scrape in scrapes if scrape.at >= scrapes[-1].at - seconds]
    found: Vector = {}
    for labels in _selected(selector.vector_selector, scrapes[-1]):
        values = [
            value
            for scrape in window
            if (value := scrape.samples.get(selector.vector_selector.name, {}).get(labels)) is not None
        ]
        steps = [after - before for before, after in pairwise(values)]
        if not steps:
            continue
        if node.func.name == "changes":
            found[labels] = sum(step != 0 for step in steps)
            continue
        grown = sum(max(0.0, step) for step in steps)
        found[labels] = grown if node.func.name == "increase" else grown / (window[-1].at - window[0].at)
    return found


def _quantiles(share: float, buckets: Vector) -> Vector:
    groups: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in buckets.items():
        bound = float(dict(labels)["le"])
        groups.setdefault(frozenset(pair for pair in labels if pair[0] != "le"), []).append((bound, count))
    return {labels: _quantile(share, sorted(counts)) for labels, counts in groups.items()}


def _quantile(share: float, counts: list[tuple[float, float]]) -> float:
    """By linear interpolation within the bucket, as Prometheus does."""
    rank, low, below = share * counts[-1][1], 0.0, 0.0
    for bound, count in counts:
        if count >= rank and count:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (rank - below) / max(count - below, 1e-12)
        low, below = bound, count
    return float("nan")
