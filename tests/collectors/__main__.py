"""Run both collectors and compare what they tell: `python -m tests.collectors FOLDER`, as `make collectors` does."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from app.local.ports import free_port
from tests.collectors.answer import TRACE, traced
from tests.integration.worker.client import PATIENCE_S

SHOWN = (
    "llm.model_name",
    "gen_ai.request.model",
    "gen_ai.usage.output_tokens",
    "gen_ai.tool.name",
    "gen_ai.agent.name",
)
TREE = {
    ("POST /v1/requests", "invoke_agent desk"),
    ("invoke_agent desk", "approval look_up"),
    ("invoke_agent desk", "execute_tool look_up"),
    ("invoke_agent desk", "execute_tool agent:desk"),
    ("invoke_agent desk", "process requests"),
    ("invoke_agent desk", "chat demo"),
    ("invoke_agent desk", "invoke_agent helper"),
    ("invoke_agent helper", "chat demo"),
    ("process requests", "commit"),
}


@dataclass(frozen=True, slots=True)
class Told:
    """A span, as a collector has it."""

    span: str
    parent: str | None
    name: str
    kind: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Collector:
    """`command` with ports of its own; spans go to `otlp`, and `spans` reads the trace."""

    name: str
    command: list[str]
    environment: dict[str, str]
    url: str
    otlp: str
    spans: Callable[[str], list[Told]]


def phoenix(folder: Path) -> Collector:
    port, url = free_port(), "http://127.0.0.1:{}".format
    environment = {
        "PHOENIX_WORKING_DIR": str(folder / "phoenix"),
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    command = [str(folder / "phoenix-env" / "bin" / "phoenix"), "serve"]
    return Collector("Phoenix", command, environment, url(port), f"{url(port)}/v1/traces", _of_phoenix)


def _of_phoenix(url: str) -> list[Told]:
    answer = httpx.get(f"{url}/v1/projects/default/spans", params={"limit": 500})
    spans = answer.raise_for_status().json()["data"] if answer.status_code != httpx.codes.NOT_FOUND else []
    of_trace = [one for one in spans if one["context"]["trace_id"] == TRACE]
    return [
        Told(one["context"]["span_id"], one["parent_id"], one["name"], one["span_kind"], one["attributes"])
        for one in of_trace
    ]


def jaeger(folder: Path) -> Collector:
    query, receiver = free_port(), free_port()
    options = {
        "extensions.jaeger_query.http.endpoint": f"127.0.0.1:{query}",
        "extensions.jaeger_query.grpc.endpoint": f"127.0.0.1:{free_port()}",
        "receivers.otlp.protocols.http.endpoint": f"127.0.0.1:{receiver}",
        "receivers.otlp.protocols.grpc.endpoint": f"127.0.0.1:{free_port()}",
    }
    command = [str(folder / "bin" / "jaeger"), *(f"--set={name}={value}" for name, value in options.items())]
    url = f"http://127.0.0.1:{query}"
    return Collector("Jaeger", command, {}, url, f"http://127.0.0.1:{receiver}/v1/traces", _of_jaeger)


def _of_jaeger(url: str) -> list[Told]:
    answer = httpx.get(f"{url}/api/traces/{TRACE}")
    if answer.status_code == httpx.codes.NOT_FOUND:
        return []
    told = []
    for one in answer.raise_for_status().json()["data"][0]["spans"]:
        tags = {tag["key"]: tag["value"] for tag in one["tags"]}
        above = [of["spanID"] for of in one["references"] if of["refType"] == "CHILD_OF"]
        parent = above[0] if above else None
        told.append(Told(one["spanID"], parent, one["operationName"], str(tags.get("span.kind")), tags))
    return told


@contextmanager
def fanned_out(collectors: list[Collector]) -> Iterator[str]:
    """An endpoint whose spans all of them get."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            for one in collectors:
                httpx.post(one.otlp, content=body, headers=_kept(self.headers), timeout=60.0).raise_for_status()
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def _kept(headers: Any) -> dict[str, str]:
    return {name: headers[name] for name in ("content-type", "content-encoding") if headers[name]}


@contextmanager
def running(collector: Collector, log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(collector.command, env=os.environ | collector.environment, stdout=file, stderr=file)
    try:
        until(partial(_answers, collector.url), f"{collector.name} did not start: see {log}")
        yield
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code < httpx.codes.INTERNAL_SERVER_ERROR
    except httpx.TransportError:
        return False


def until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            sys.exit(otherwise)
        time.sleep(0.2)


def edges(spans: list[Told]) -> set[tuple[str, str]]:
    names = {one.span: one.name for one in spans}
    return {(names[one.parent], one.name) for one in spans if one.parent in names}


def printed(spans: list[Told], parent: str | None, depth: int = 0) -> None:
    ids = {one.span for one in spans}
    for one in spans:
        if one.parent == parent or (parent is None and one.parent not in ids):
            shown = {name: one.attributes[name] for name in SHOWN if name in one.attributes}
            print(f"{'  ' * depth}{one.name} [{one.kind}] {shown or ''}")
            printed(spans, one.span, depth + 1)


def main(folder: Path) -> None:
    made = [make(folder) for make in (phoenix, jaeger)]
    with ExitStack() as stack:
        for one in made:
            stack.enter_context(running(one, folder / f"{one.name}.log"))
        endpoint = stack.enter_context(fanned_out(made))
        traced(Path(stack.enter_context(tempfile.TemporaryDirectory())), endpoint)
        for one in made:
            until(lambda one=one: edges(one.spans(one.url)) >= TREE, f"{one.name} has not the tree")
            spans = one.spans(one.url)
            print(f"\n{one.name}: {len(spans)} spans")
            printed(spans, None)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
