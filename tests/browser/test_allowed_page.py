"""A page of an origin that `PARLEY_GATEWAY_ORIGINS` names: it asks, reads the events, and its `EventSource` ends."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser

from app.settings import Settings
from tests.browser.test_foreign_page import foreign  # noqa: F401 - a fixture
from tests.integration.gateway.gateway_process import GatewayProcess

pytestmark = pytest.mark.usefixtures("worker")
ASK = """async gateway => {
  const headers = {'Content-Type': 'application/json'}
  const body = JSON.stringify({prompt: 'hello', max_tokens: 4})
  const asked = await (await fetch(gateway + '/v1/requests', {method: 'POST', headers, body})).json()
  const seen = {opens: 0, ends: 0, tokens: 0}
  const source = new EventSource(gateway + asked.events)
  source.onopen = () => seen.opens++
  source.onmessage = message => {
    const event = JSON.parse(message.data)
    seen.ends += event.type === 'done'
    seen.tokens += (event.tokens || []).length
  }
  await new Promise(done => { source.onerror = () => source.readyState === EventSource.CLOSED && done() })
  return seen
}"""


async def test_an_event_source_of_an_allowed_page_reads_the_answer_once_and_stops(
    browser: Browser,
    settings: Settings,
    foreign: str,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    allowing = settings.model_copy(update={"gateway_origins": foreign})
    with GatewayProcess(allowing, tmp_path_factory.mktemp("gateway") / "gateway.log") as gateway:
        page = await browser.new_page()
        await page.goto(foreign)
        seen = await page.evaluate(ASK, gateway.url)
    assert seen == {"opens": 1, "ends": 1, "tokens": 4}
