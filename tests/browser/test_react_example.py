"""The React example of the npm package: a worker dies, the page is loaded again, a second tab reads on."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import BrowserContext, Page, Request, Route, expect

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.browser.test_page import at_length
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.npm import NODE, NPM
from tests.integration.npm_package import built_example
from tests.integration.worker.conftest import module_settings

ANSWER = "article[data-role=assistant]"
LONG_MS = 120_000


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """Where the example is served, which is not the gateway."""
    if NODE is None or NPM is None:
        pytest.skip("node is not installed: the React example was not run")
    handler = partial(_Quiet, directory=str(built_example()))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def settings(chromium: str, kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return module_settings(kafka, tmp_path_factory.mktemp("settings"), partitions=1, paced_tokens_per_s=25.0)


@pytest.fixture(scope="module")
def allowing(origin: str, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    own = settings.model_copy(update={"gateway_origins": origin})
    with GatewayProcess(own, tmp_path_factory.mktemp("gateway") / "gateway.log") as gateway:
        yield gateway


async def opened(context: BrowserContext, origin: str, gateway: GatewayProcess, chat: str) -> Page:
    page = await context.new_page()
    await page.goto(f"{origin}/?gateway={gateway.url}&user=nina&chat={chat}")
    return page


async def ask(page: Page, text: str) -> None:
    await page.get_by_label("Message").fill(text)
    await page.get_by_role("button", name="Send").click()


async def wait_words(page: Page, words: int) -> None:
    script = f"document.querySelector('{ANSWER}')?.innerText.split(' ').length > {words}"
    await page.wait_for_function(script, timeout=LONG_MS)


async def wait_ready(page: Page) -> None:
    await expect(page.get_by_role("status")).to_have_text("ready", timeout=LONG_MS)


async def kept(gateway: GatewayProcess, request_id: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=gateway.url, params={"user_id": "nina"}, timeout=60) as http:
        answer: dict[str, Any] = (await http.get(f"/v1/requests/{request_id}")).raise_for_status().json()
        return answer


async def short(route: Route) -> None:
    """Whatever the answer, it is five tokens long."""
    body = route.request.post_data_json
    await (route.fallback() if body is None else route.continue_(post_data={**body, "max_tokens": 5}))


async def test_stop_ends_the_answer_at_the_worker_also_after_a_reload(
    context: BrowserContext, origin: str, allowing: GatewayProcess, worker: WorkerProcess
) -> None:
    for chat in ("stop", "stop-after-reload"):
        page = await opened(context, origin, allowing, chat)
        await at_length(page, 20_000)
        await ask(page, "tell me everything")
        await wait_words(page, 5)
        if chat != "stop":
            await page.reload()
            await wait_words(page, 5)
        await page.get_by_role("button", name="Stop").click()
        await wait_ready(page)
        request_id = await page.locator(ANSWER).get_attribute("id") or ""
        while (answer := await kept(allowing, request_id))["finish_reason"] is None:
            await page.wait_for_timeout(50)
        assert answer["finish_reason"] == "cancelled"


async def test_the_next_question_has_the_turn_before_and_regenerate_answers_anew(
    context: BrowserContext, origin: str, allowing: GatewayProcess, worker: WorkerProcess
) -> None:
    page = await opened(context, origin, allowing, "more")
    await ask(page, "one")
    await wait_words(page, 3)
    await wait_ready(page)
    first = await page.locator(ANSWER).get_attribute("id") or ""
    await page.get_by_role("button", name="Regenerate").click()
    await page.wait_for_function(f"document.querySelector('{ANSWER}')?.id !== '{first}'", timeout=LONG_MS)
    await wait_ready(page)
    again = await page.locator(ANSWER).get_attribute("id") or ""
    await ask(page, "two")
    await page.wait_for_function(f"document.querySelectorAll('{ANSWER}').length === 2", timeout=LONG_MS)
    await wait_ready(page)
    last = await page.locator(ANSWER).last.get_attribute("id") or ""
    tokens = [(await kept(allowing, one))["usage"]["prompt_tokens"] for one in (first, again, last)]
    assert tokens[0] == tokens[1] < tokens[2]


async def answered(page: Page, questions: list[str]) -> str:
    """The id of the last answer, once these are the questions and it is over."""
    await expect(page.locator("article[data-role=user]")).to_have_text(questions)
    await expect(page.locator(ANSWER)).to_have_count(len(questions), timeout=LONG_MS)
    await wait_ready(page)
    return await page.locator(ANSWER).last.get_attribute("id") or ""


async def test_versions_are_walked_and_what_is_asked_goes_behind_the_one_that_is_seen(
    context: BrowserContext, origin: str, allowing: GatewayProcess, worker: WorkerProcess
) -> None:
    page = await opened(context, origin, allowing, "versions")
    await page.route("**/v1/requests?*", short)
    count = page.get_by_label("Versions").locator("span")
    await ask(page, "one")
    first = await answered(page, ["one"])
    await page.get_by_role("button", name="Regenerate").click()
    await expect(count).to_have_text("2/2")
    await page.get_by_role("button", name="Edit").click()
    await ask(page, "uno, and more words than before")
    await expect(count).to_have_text("3/3")
    edited = await answered(page, ["uno, and more words than before"])
    await ask(page, "two")
    behind_edited = await answered(page, ["uno, and more words than before", "two"])
    for left in ("2/3", "1/3"):
        await page.get_by_role("button", name="Earlier version").click()
        await expect(count).to_have_text(left)
    await ask(page, "three")
    behind_first = await answered(page, ["one", "three"])
    await page.reload()
    await expect(page.locator(f"article[id='{first}']")).to_have_text((await kept(allowing, first))["text"])
    await page.get_by_role("button", name="Later version").click()
    await expect(count).to_have_text("2/3")
    await page.get_by_role("button", name="Later version").click()
    assert await answered(page, ["uno, and more words than before", "two"]) == behind_edited
    await page.get_by_role("button", name="Edit").last.click()
    await ask(page, "three")
    await expect(count).to_have_text(["3/3", "2/2"])
    behind_other = await answered(page, ["uno, and more words than before", "three"])
    short_one, long_one = [(await kept(allowing, one))["usage"]["prompt_tokens"] for one in (first, edited)]
    lengths = [(await kept(allowing, one))["usage"]["prompt_tokens"] for one in (behind_first, behind_other)]
    assert lengths[1] - lengths[0] == long_one - short_one, "each has read the version that was seen, and no other"


async def test_a_worker_dies_the_page_is_loaded_again_and_a_second_tab_shows_the_same(
    context: BrowserContext,
    origin: str,
    allowing: GatewayProcess,
    worker: WorkerProcess,
    start_worker: Callable[[], WorkerProcess],
    pictures: Path,
) -> None:
    page = await opened(context, origin, allowing, "kill")
    await ask(page, "tell me a long story")
    await wait_words(page, 20)
    worker.kill()
    start_worker()
    await page.reload()
    await wait_words(page, 20)
    await page.screenshot(path=pictures / "reloaded.png")
    second = await opened(context, origin, allowing, "kill")
    await wait_words(second, 20)
    await wait_ready(page)
    await wait_ready(second)
    await second.screenshot(path=pictures / "second-tab.png")
    answer = await kept(allowing, await page.locator(ANSWER).get_attribute("id") or "")
    assert answer["finish_reason"] == "length"
    for tab in (page, second):
        assert await tab.locator(ANSWER).count() == 1
        assert await tab.locator(ANSWER).text_content() == answer["text"]
    await page.reload()
    assert await page.locator(ANSWER).text_content() == answer["text"], "what is over is kept by the page"


async def test_messages_come_after_an_answer_now_and_instead_of_it(
    context: BrowserContext, origin: str, allowing: GatewayProcess, worker: WorkerProcess
) -> None:
    page = await opened(context, origin, allowing, "busy")
    await at_length(page, 20_000)
    bodies: list[dict[str, Any]] = []

    def note(request: Request) -> None:
        if request.method == "POST":
            bodies.append(request.post_data_json)

    page.on("request", note)
    await ask(page, "tell me a long story")
    await wait_words(page, 3)
    for text in ("later", "never"):
        await ask(page, text)
    queued = page.locator("article[data-role=queued]")
    await expect(queued).to_have_count(2)
    await queued.last.get_by_role("button", name="Withdraw").click()
    await page.get_by_role("button", name="Stop").click()
    await expect(queued).to_have_count(0)
    await expect(page.locator("article[data-role=user]")).to_have_text(["tell me a long story", "later"])
    await expect(page.locator(ANSWER).last).to_have_text(re.compile(r"\w+ \w+ \w+"), timeout=LONG_MS)
    await page.get_by_label("When").select_option("now")
    await ask(page, "this")
    await expect(page.locator("article[data-role=user]")).to_have_count(3)
    await expect(page.locator(ANSWER)).to_have_count(3, timeout=LONG_MS)
    await expect(page.locator(ANSWER).last).to_have_text(re.compile(r"\w+ \w+ \w+"), timeout=LONG_MS)
    await page.get_by_label("When").select_option("instead")
    await ask(page, "that")
    await expect(page.locator("article[data-role=user]")).to_have_text(["tell me a long story", "later", "that"])
    await expect(page.locator(ANSWER)).to_have_count(3, timeout=LONG_MS)
    await page.get_by_role("button", name="Stop").click()
    await wait_ready(page)
    assert [body.get("while_busy") for body in bodies] == [None, "interrupt", "interrupt", "rollback"]
    for body, reason in zip(bodies[:3], ["cancelled"] * 3, strict=True):
        assert (await kept(allowing, body["request_id"]))["finish_reason"] == reason
