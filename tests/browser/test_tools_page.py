"""Tools on the page: the gateway offers them, a program on Kafka runs them, and the page shows calls and results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, expect

from app.settings import Settings
from app.tools import Tools
from tests.browser.test_page import LONG_MS, at_length, enter, over, say, stored
from tests.browser.test_while_busy import send
from tests.integration.gateway.gateway_process import GatewayProcess

pytestmark = pytest.mark.usefixtures("worker")
tools = Tools()
free = asyncio.Event()
free.set()


@tools.tool
async def look_up(word: str) -> str:
    """What a word means."""
    await free.wait()
    return f"the meaning of{word}"


@pytest_asyncio.fixture(loop_scope="session")
async def program(settings: Settings) -> AsyncIterator[None]:
    serving = asyncio.create_task(tools.serve(settings))
    yield
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


@pytest.fixture(scope="module")
def offering_gateway(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("offering")
    (folder / "tools.json").write_text(json.dumps(tools.definitions))
    offering = settings.model_copy(update={"gateway_tools": folder / "tools.json"})
    with GatewayProcess(offering, folder / "gateway.log") as gateway:
        yield gateway


@pytest.mark.usefixtures("program")
async def test_a_call_and_its_result_are_shown_and_found_again(
    context: BrowserContext, offering_gateway: GatewayProcess
) -> None:
    page = await enter(context, offering_gateway, "tess")
    await at_length(page, 8)
    await say(page, "What does it mean?")
    calls = page.locator("article").last.locator(".call")
    await expect(calls.first.locator("summary")).to_contain_text("Look up", timeout=LONG_MS)
    await expect(calls.first).to_contain_text("the meaning of", timeout=LONG_MS)
    await expect(page.locator("article").last).to_have_attribute("data-state", "length", timeout=LONG_MS)
    assert await calls.count() > 1
    # Details are folded, and stay open as the answer goes on.
    await expect(calls.first.locator("pre").first).not_to_be_visible()
    await calls.first.locator("summary").click()
    await expect(calls.first.locator("pre").last).to_contain_text("the meaning of")
    result = await calls.first.locator("pre").last.inner_text()
    await stored(offering_gateway, "tess", 1)
    await page.reload()
    await calls.first.locator("summary").click()
    await expect(calls.first).to_contain_text("Given to look_up")
    await expect(calls.first.locator("pre").last).to_have_text(result)


@pytest.mark.usefixtures("program")
async def test_a_message_is_added_to_an_answer_whose_tool_runs(
    context: BrowserContext, offering_gateway: GatewayProcess, pictures: Path
) -> None:
    page = await enter(context, offering_gateway, "stig")
    await at_length(page, 8)
    choice = page.get_by_label("When it is answered")
    free.clear()
    await say(page, "What does it mean?")
    await expect(page.locator(".call").first).to_be_visible(timeout=LONG_MS)
    await expect(choice.locator("option")).to_have_text(
        ["After this answer", "Add to this answer", "Now: stop this answer", "Instead: forget this question"]
    )
    body = await send(page, "in two words, please", "Add to this answer")
    assert body["while_busy"] == "steer"
    await expect(page.locator("#heard")).to_have_text(
        "Sent; the answer above reads it with the next results of its tools."
    )
    await expect(page.locator("article").last.locator(".note")).to_contain_text("The answer above reads it with")
    await expect(choice).to_have_value("queue")  # the next one goes behind again
    await page.set_viewport_size({"width": 375, "height": 667})
    await page.screenshot(path=pictures / "added-phone.png")
    await page.set_viewport_size({"width": 1100, "height": 760})
    free.set()
    added = page.locator("article.steered")
    await expect(added.locator(".note")).to_have_text("The answer above has read this message.", timeout=LONG_MS)
    await expect(page.locator("article").first).to_have_attribute("data-state", "length", timeout=LONG_MS)
    await page.screenshot(path=pictures / "added.png")
    await stored(offering_gateway, "stig", 2)
    for _ in ("as it was asked", "as it is read again"):
        await expect(page.locator(".prompt")).to_have_text(["What does it mean?", "in two words, please"])
        await expect(added).to_have_count(1)
        await expect(added.get_by_role("button")).to_have_count(0)
        await page.reload()
    # Nothing can be added to an answer without tools.
    await page.get_by_label("Tools", exact=True).uncheck()
    await page.unroute("**/v1/requests?*")
    await say(page, "And now?")
    await expect(choice).to_be_visible()
    await expect(choice.locator("option")).to_have_count(3)
    await page.keyboard.press("Escape")
    await over(page)


async def test_a_question_can_be_asked_without_tools(context: BrowserContext, offering_gateway: GatewayProcess) -> None:
    page = await enter(context, offering_gateway, "tilo")
    choice = page.get_by_label("Tools", exact=True)
    await expect(choice).to_be_checked()
    bodies = []
    page.on("request", lambda request: bodies.append(request.post_data_json) if request.post_data else None)
    await say(page, "with tools")
    await expect(page.locator("article")).to_have_count(1)
    await choice.uncheck()
    await page.reload()
    await expect(choice).not_to_be_checked()
    await say(page, "without tools")
    await expect(page.locator("article")).to_have_count(2)
    assert ["tools" in body for body in bodies] == [True, False]
