"""Pages that know nothing of Parley, each as such pages are written, at an origin of its own in a real Chromium.

Each has a service's path and names in its code, appends what comes to an element, and the test reads the element.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, expect

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import PATIENCE_S, Client
from tests.integration.worker.conftest import module_settings

POLICY = """
[[pages]]
path = "/chat"
fields = { prompt = "query" }
format = "data"
[[pages]]
path = "/chat"
method = "POST"
format = "raw"
[[pages]]
path = "/generate"
format = "text"
[[pages]]
path = "/socket"
method = "WS"
format = "text"
"""
PAGE = """<!doctype html><meta charset=utf-8><link rel=icon href=data:,><body><pre id=answer></pre><pre id=state></pre>
<script>{script}</script>"""
BEGIN = """
const service = new URLSearchParams(location.search).get('at')
const question = new URLSearchParams(location.search).get('q')
const answer = document.getElementById('answer'), state = document.getElementById('state');
"""
PAGES = {
    "event_source": """
        let opened = 0
        const source = new EventSource(`${service}/chat?query=${encodeURIComponent(question)}`)
        source.onopen = () => { opened++ }
        source.onmessage = (e) => { answer.textContent += e.data }
        source.onerror = () => { if (source.readyState === EventSource.CLOSED) state.textContent = `closed ${opened}` }
    """,
    "reader_of_a_body": """
        (async () => {
          const reply = await fetch(`${service}/generate?prompt=${encodeURIComponent(question)}`)
          const reader = reply.body.getReader(), decoder = new TextDecoder()
          for (;;) {
            const { done, value } = await reader.read()
            if (done) break
            answer.textContent += decoder.decode(value, { stream: true })
          }
          state.textContent = `closed ${reply.headers.get('content-type')}`
        })()
    """,
    "posted": """
        (async () => {
          const headers = { 'Content-Type': 'application/json' }
          const body = JSON.stringify({ prompt: question })
          const reply = await fetch(`${service}/chat`, { method: 'POST', headers, body })
          const stream = reply.body.pipeThrough(new TextDecoderStream()).getReader()
          for (let part = await stream.read(); !part.done; part = await stream.read()) answer.textContent += part.value
          state.textContent = `closed ${reply.headers.get('content-type')}`
        })()
    """,
    "socket": """
        const socket = new WebSocket(`${service.replace('http', 'ws')}/socket`)
        socket.onopen = () => socket.send(JSON.stringify({ request_id: 'page-' + Date.now(), prompt: question }))
        socket.onmessage = (e) => { answer.textContent += e.data; if (e.data === '') state.textContent = 'closed' }
    """,
}


@pytest.fixture(scope="module")
def settings(chromium: str, kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    own = {"partitions": 1, "paced_tokens_per_s": 40.0, "max_tokens": 30}
    return module_settings(kafka, tmp_path_factory.mktemp("settings"), **own)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    for name, script in PAGES.items():
        (folder / f"{name}.html").write_text(PAGE.format(script=BEGIN + script))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def paged(
    settings: Settings, start_worker: Callable[[], WorkerProcess], site: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    start_worker()
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "policy.toml").write_text(POLICY)
    own: dict[str, str | Path] = {"gateway_origins": site, "policy": folder / "policy.toml"}
    with GatewayProcess(settings.model_copy(update=own), folder / "gateway.log") as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("event_source", "closed 1"),
        ("reader_of_a_body", "closed text/plain; charset=utf-8"),
        ("posted", "closed text/event-stream; charset=utf-8"),
        ("socket", "closed"),
    ],
)
async def test_a_page_shows_the_answer(
    browser: Browser, paged: GatewayProcess, site: str, name: str, state: str
) -> None:
    question = f"Why is the sky blue,\n  {name}?"
    page = await browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(f"{site}/{name}.html?{httpx.QueryParams(at=paged.url, q=question)}")
    await expect(page.locator("#state")).not_to_be_empty()
    shown, ended = await page.evaluate("[answer.textContent, state.textContent]")
    assert (ended, complaints) == (state, [])
    await page.close()
    turns: dict[str, str] = {}
    async with Client(paged.settings) as client, asyncio.timeout(PATIENCE_S):
        while question not in turns:
            turns = {turn.prompt: turn.answer for turn in await client.turns("dev")}
    assert turns[question]
    assert shown == turns[question]
