"""Prometheus metrics of one gateway."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from app.telemetry.log_counter import LogCounter


class GatewayMetrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for standard in (ProcessCollector, PlatformCollector, GCCollector):
            standard(registry=self.registry)
        self.log_lines = LogCounter(self.registry, "parley_gateway_log_lines")
        self.replies = Counter(
            "parley_gateway_replies", "HTTP replies", ["method", "route", "status"], registry=self.registry
        )
        self.streams = Gauge("parley_gateway_streams", "Open event streams.", registry=self.registry)
        self.stalled = Counter(
            "parley_gateway_stalled", "Readers disconnected because they accepted no data.", registry=self.registry
        )
        self.events = Counter("parley_gateway_events", "Records of `tokens` read.", registry=self.registry)
        self.partitions = Gauge(
            "parley_gateway_partitions",
            "Partitions of `tokens` that this gateway reads.",
            registry=self.registry,
        )
        self.fleets = Gauge(
            "parley_gateway_fleets",
            "Fleets of gateways without a common secret, each of which reads every token; 1 is normal.",
            registry=self.registry,
        )
        self.refused_links = Counter(
            "parley_gateway_refused_links",
            "Links between gateways that were refused, because one end did not prove that it has the secret.",
            ["side"],
            registry=self.registry,
        )
        self.held = Gauge("parley_gateway_held_events", "Token events in memory.", registry=self.registry)
        self.held_bytes = Gauge(
            "parley_gateway_held_bytes", "Upper bound of the memory of those events in bytes.", registry=self.registry
        )
        self.body_bytes = Gauge(
            "parley_gateway_body_bytes", "Memory of request bodies in transfer in bytes.", registry=self.registry
        )
        self.connections = Gauge("parley_gateway_connections", "Open connections.", registry=self.registry)
        self.refused_connections = Gauge(
            "parley_gateway_refused_connections",
            "Connections rejected because too many were open.",
            registry=self.registry,
        )
        self.scans = Counter("parley_gateway_scans", "Searches of the log for an answer.", registry=self.registry)
        self.first_token = Histogram(
            "parley_gateway_first_token_seconds",
            "Seconds from the request to its first token.",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=self.registry,
        )
