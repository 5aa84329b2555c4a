"""The ports of an instance: chosen once and stored in its folder, so that a restarted server keeps its address."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from app.local.errors import LocalError, LocalUsageError
from app.local.ports import free_port, port_is_free

FILE = "ports.json"


@dataclass(frozen=True, slots=True)
class InstancePorts:
    kafka: int
    kafka_controller: int
    milvus: int


def remembered_ports(folder: Path) -> InstancePorts | None:
    path = folder / FILE
    try:
        values = json.loads(path.read_text())
        return InstancePorts(**{name: int(port) for name, port in values.items()})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise LocalError(f"{path} cannot be read ({error}): delete it") from error


def remember_ports(folder: Path, ports: InstancePorts) -> None:
    partial = folder / f"{FILE}.part"
    partial.write_text(json.dumps(asdict(ports)))
    partial.replace(folder / FILE)


def choose_ports(before: InstancePorts | None, kafka: int | None, milvus: int | None) -> InstancePorts:
    """None: as before. 0: a new free port."""
    ports = before or InstancePorts(kafka=free_port(), kafka_controller=free_port(), milvus=free_port())
    if kafka is not None:
        ports = replace(ports, kafka=kafka or free_port())
    if milvus is not None:
        ports = replace(ports, milvus=milvus or free_port())
    if ports.kafka == ports.milvus:
        raise LocalUsageError(f"Kafka and Milvus cannot both have port {ports.kafka}")
    return ports


def free_controller_port(ports: InstancePorts) -> InstancePorts:
    """No client knows the controller's port, so it may change."""
    taken = {ports.kafka, ports.milvus}
    while ports.kafka_controller in taken or not port_is_free(ports.kafka_controller):
        ports = replace(ports, kafka_controller=free_port())
    return ports


def require_free(name: str, port: int, given: int | None) -> None:
    if port_is_free(port):
        return
    option = f"--{name.lower()}-port"
    if given:
        raise LocalUsageError(f"port {port} is in use by another process: choose another one for {name} with {option}")
    raise LocalError(
        f"port {port}, which {name} had before, is in use by another process: "
        f"stop that process, or choose a new port with {option} 0"
    )
