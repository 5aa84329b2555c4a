"""Development mode against a page of another origin, and against one that reached it by DNS rebinding."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from playwright.async_api import Browser, BrowserContext, Response

from tests.integration.gateway.gateway_process import GatewayProcess

pytestmark = pytest.mark.usefixtures("worker")
GETS = ("/v1/me", "/v1/models", "/v1/conversations", "/v1/search?q=x", "/v1/requests/a", "/v1/requests/a/events",
        "/v1/users/dev/erasure", "/metrics", "/healthz", "/readyz", "/openapi.json", "/favicon.svg")  # fmt: skip
POSTS = ("/v1/requests", "/v1/chat/completions")
TRY = """async ([gateway, gets, posts]) => {
  for (const mode of ['no-cors', 'cors']) {
    for (const path of gets) await fetch(gateway + path, {mode}).catch(() => null)
    for (const path of posts)
      await fetch(gateway + path, {mode, method: 'POST', body: '{"prompt": "x"}'}).catch(() => null)
  }
  for (const tag of ['img', 'iframe', 'script'])
    await new Promise(done => {
      const element = document.createElement(tag)
      element.onload = element.onerror = done
      element.src = gateway + '/v1/me?by=' + tag
      document.body.append(element)
      setTimeout(done, 5000)
    })
  await new Promise(done => {
    const events = new EventSource(gateway + '/v1/requests/b/events')
    events.onopen = events.onerror = () => done(events.close())
  })
  return await new Promise(done => {
    const socket = new WebSocket(gateway.replace('http', 'ws') + '/v1/ws')
    socket.onopen = () => done('opened')
    socket.onerror = () => done('refused')
  })
}"""


@pytest.fixture
def foreign() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>foreign</title><body>")

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_a_page_of_another_origin_is_refused_on_every_path(
    browser: Browser, gateway: GatewayProcess, foreign: str, name: str
) -> None:
    page = await browser.new_page()
    replies: list[Response] = []
    page.on("response", lambda reply: replies.append(reply))  # noqa: PLW0108 - playwright marks what it is given
    await page.goto(foreign.replace("127.0.0.1", name))
    replies.clear()
    assert await page.evaluate(TRY, [gateway.url, GETS, POSTS]) == "refused"
    asked = [reply for reply in replies if reply.url.startswith(gateway.url)]
    assert len(asked) >= len(GETS) + len(POSTS)
    assert {reply.status for reply in asked} == {403}
    assert await page.evaluate("document.querySelector('iframe').contentDocument") is None


async def test_a_page_by_another_name_of_this_machine_is_refused(gateway: GatewayProcess) -> None:
    port = gateway.url.rpartition(":")[2]
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        for host in (f"evil.example:{port}", f"a`b.evil.example:{port}", f"127.0.0.1.evil.example:{port}"):
            for path in ("/", *GETS):
                assert (await http.get(path, headers={"Host": host})).status_code == 403, (host, path)


async def test_a_link_of_another_page_opens_the_chat_page(
    context: BrowserContext, gateway: GatewayProcess, foreign: str
) -> None:
    page = await context.new_page()
    await page.goto(foreign)
    await page.evaluate("url => { location.href = url }", gateway.url)
    await page.get_by_label("Message").wait_for()
