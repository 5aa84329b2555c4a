"""A message that is sent while an answer is under way: behind it, now, or in its place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, BrowserContext, Page, Route, expect

from app.settings import Settings
from tests.browser.test_page import LONG_MS, enter, over, say, stored, whole, words
from tests.integration.gateway.gateway_process import GatewayProcess

pytestmark = pytest.mark.usefixtures("worker")
PHONE = {"width": 375, "height": 667}
AXE = "() => document.documentElement.scrollWidth"


async def send(page: Page, text: str, when: str) -> dict[str, Any]:
    """The body that the page sends."""
    await page.get_by_label("When it is answered").select_option(label=when)
    async with page.expect_request(lambda request: request.method == "POST" and "/v1/requests" in request.url) as asked:
        await say(page, text)
    body: dict[str, Any] = (await asked.value).post_data_json
    return body


async def turns_of(gateway: GatewayProcess, user: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=gateway.url, params={"user_id": user}, timeout=60) as http:
        (talk,) = (await http.get("/v1/conversations")).json()["conversations"]
        turns: list[dict[str, Any]] = (await http.get(f"/v1/conversations/{talk['conversation_id']}")).json()["turns"]
        return turns


async def test_a_message_for_now_stops_the_answer_and_its_text_stays(
    context: BrowserContext, gateway: GatewayProcess, pictures: Path
) -> None:
    page = await enter(context, gateway, "nell")
    await expect(page.get_by_label("When it is answered")).not_to_be_visible()
    await say(page, "tell me a long story")
    await words(page, 5)
    body = await send(page, "no, the other one", "Now: stop this answer")
    assert body["while_busy"] == "interrupt"
    first = page.locator("article").first
    await expect(first.locator(".actions")).to_contain_text("It was stopped for your next message.")
    await expect(page.locator("#heard")).to_have_text("Sent; the answer above is stopped for it.")
    await words(page, 3)
    # The next one goes behind this one again.
    await expect(page.get_by_label("When it is answered")).to_have_value("queue")
    await page.screenshot(path=pictures / "now.png")
    await page.keyboard.press("Escape")
    await over(page)
    await stored(gateway, "nell", 2)
    kept = await turns_of(gateway, "nell")
    assert [turn["prompt"] for turn in kept] == ["tell me a long story", "no, the other one"]
    assert " ".join(kept[0]["answer"].split()) == " ".join((await first.locator(".answer").inner_text()).split())


async def test_a_message_instead_of_the_question_leaves_nothing_of_it(
    context: BrowserContext, gateway: GatewayProcess, pictures: Path
) -> None:
    page = await enter(context, gateway, "rolf")
    other = await enter(context, gateway, "rolf")
    await say(page, "tell me a long story")
    await words(page, 5)
    await words(other, 2)
    body = await send(page, "I meant a poem", "Instead: forget this question")
    assert body["while_busy"] == "rollback"
    for tab in (page, other):
        first = tab.locator("article").first
        await expect(first.locator(".actions")).to_contain_text(
            "It is forgotten: your next message stands in its place."
        )
        await expect(first.get_by_role("button", name="Regenerate")).to_have_count(0)
        await expect(first.get_by_role("button", name="Edit this question")).not_to_be_visible()
    await words(page, 3)
    await page.screenshot(path=pictures / "instead.png")
    await page.keyboard.press("Escape")
    await over(page)
    await stored(gateway, "rolf", 1)
    assert [turn["prompt"] for turn in await turns_of(gateway, "rolf")] == ["I meant a poem"]
    await other.reload()
    await expect(other.locator(".prompt")).to_have_text(["I meant a poem"])


async def test_what_is_queued_is_shown_as_such_and_taken_back_by_keyboard(
    context: BrowserContext, gateway: GatewayProcess, pictures: Path
) -> None:
    page = await enter(context, gateway, "quin")
    await say(page, "tell me a long story")
    await words(page, 3)
    for text in ("and a second one", "and a third one"):
        await say(page, text)
    waiting = page.locator("article.queued")
    await expect(waiting).to_have_count(2)
    await expect(waiting.locator(".note")).to_have_text(["It is answered when the answer above is there."] * 2)
    await expect(page.locator("#heard")).to_have_text("Sent; it is answered when the answer above is there.")
    await page.set_viewport_size({"width": 375, "height": 667})
    await page.screenshot(path=pictures / "queued-phone.png")
    assert await page.evaluate(AXE) == 375
    await page.set_viewport_size({"width": 1100, "height": 760})
    await page.screenshot(path=pictures / "queued.png")
    await waiting.first.get_by_role("button", name="Withdraw this question").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Message")).to_be_focused()
    await expect(page.locator("article").nth(1).locator(".note")).to_have_text("You have taken it back.")
    # The one that is being written goes on, and the third one comes behind it.
    await expect(page.locator("article").first).to_have_class("live")
    await page.keyboard.press("Escape")
    await expect(page.locator("article").first.locator(".actions")).to_contain_text("It was stopped.")
    await words(page, 3)
    await expect(page.locator("article").nth(1).locator(".actions")).to_contain_text("It was stopped before it began.")
    await page.keyboard.press("Escape")
    await over(page)
    assert await page.locator(".answer").last.inner_text() == await whole(gateway, page, "quin")


async def test_what_is_queued_is_there_after_a_reload(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "remo")
    await say(page, "tell me a long story")
    await words(page, 3)
    await say(page, "and a second one")
    await expect(page.locator("article.queued")).to_have_count(1)
    await page.reload()
    await expect(page.locator("article.queued .note")).to_have_text("It is answered when the answer above is there.")
    await page.get_by_role("button", name="Withdraw this question").click()
    await expect(page.locator("article.queued")).to_have_count(0, timeout=LONG_MS)
    await page.keyboard.press("Escape")
    await expect(page.locator("article.live")).to_have_count(0, timeout=LONG_MS)


async def test_a_message_that_is_typed_while_the_page_loads_stands_behind_those_that_run(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "lena")
    await say(page, "tell me a long story")
    await words(page, 3)
    loading, may_load = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        loading.set()
        await may_load.wait()
        await route.continue_()

    await page.route("**/v1/conversations/*", hold)
    await page.reload()
    await loading.wait()
    await say(page, "and a second one")
    await expect(page.get_by_label("Message")).to_have_value("")
    may_load.set()
    for _ in ("as it is sent", "as it is read again"):
        await expect(page.locator(".prompt")).to_have_text(["tell me a long story", "and a second one"])
        await expect(page.locator("article.queued")).to_have_count(1)
        await page.reload()
    await expect(page.locator("article.live")).to_have_count(2)
    for left in (1, 0):
        await page.keyboard.press("Escape")
        await expect(page.locator("article.live")).to_have_count(left, timeout=LONG_MS)


async def test_twenty_messages_in_a_second_are_asked_once_each_in_their_order(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "zeno")
    slow = iter((0.3, 0.0, 0.2, 0.0, 0.1))

    async def late(route: Route) -> None:
        await asyncio.sleep(next(slow, 0.0))
        await route.continue_()

    await page.route("**/v1/requests?*", late)
    texts = [f"number {number}" for number in range(20)]
    for text in texts:
        await say(page, text)
    await expect(page.locator(".prompt")).to_have_text(texts, timeout=LONG_MS)
    await expect(page.locator("article.queued")).to_have_count(19)
    await page.get_by_label("When it is answered").select_option("rollback")
    await say(page, "none of these")
    await expect(page.locator("article.rolled-back")).to_have_count(20, timeout=LONG_MS)
    await words(page, 3)
    await page.keyboard.press("Escape")
    await over(page)
    await stored(gateway, "zeno", 1)
    assert [turn["prompt"] for turn in await turns_of(gateway, "zeno")] == ["none of these"]


async def test_an_impatient_click_sends_one_message(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "dora")
    bodies = []
    page.on("request", lambda request: bodies.append(request.post_data_json) if request.method == "POST" else None)
    await page.get_by_label("Message").fill("once")
    await page.get_by_role("button", name="Send", exact=True).dblclick()
    await words(page, 3)
    await expect(page.locator("article")).to_have_count(1)
    assert [body["prompt"] for body in bodies] == ["once"]
    await page.keyboard.press("Escape")
    await over(page)


async def test_a_message_whose_reply_was_lost_is_asked_once(browser: Browser, gateway: GatewayProcess) -> None:
    context = await browser.new_context()  # the browser itself complains of what it cannot load
    page = await enter(context, gateway, "lost")
    bodies: list[dict[str, Any]] = []

    async def lose(route: Route) -> None:
        bodies.append(route.request.post_data_json)
        await asyncio.sleep(0.5)
        if len(bodies) > 2:
            await route.continue_()
            return
        if len(bodies) == 1:
            await route.fetch()  # it has arrived; the reply has not
        await route.abort()

    await page.route("**/v1/requests?*", lose)
    await say(page, "is it there?")
    await say(page, "and this?")
    await expect(page.get_by_label("Message")).to_have_value("is it there?\nand this?")
    await page.get_by_label("Message").fill("is it there?")
    await page.get_by_label("Message").press("Enter")
    await words(page, 3)
    assert bodies[2]["request_id"] == bodies[0]["request_id"]
    await page.keyboard.press("Escape")
    await over(page)
    await stored(gateway, "lost", 1)
    assert [turn["prompt"] for turn in await turns_of(gateway, "lost")] == ["is it there?"]
    await context.close()


async def test_a_gateway_that_ends_between_two_messages_loses_neither(
    browser: Browser, settings: Settings, tmp_path: Path
) -> None:
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        context = await browser.new_context()
        page = await enter(context, gateway, "gail")
        await say(page, "tell me a long story")
        await words(page, 3)
        await asyncio.to_thread(gateway.stop)
        await page.get_by_label("When it is answered").select_option("interrupt")
        await say(page, "now this")
        await page.get_by_label("Message").press("End")
        await page.keyboard.type(" and that")
        await expect(page.get_by_label("Message")).to_have_value("now this and that")
        await asyncio.to_thread(gateway.start)
        await expect(page.locator("#banner")).not_to_be_visible(timeout=LONG_MS)
        await expect(page.locator("article.live")).to_have_count(1)
        await page.get_by_label("When it is answered").select_option("interrupt")
        await page.get_by_label("Message").press("Enter")
        await expect(page.locator("article").first.locator(".actions")).to_contain_text(
            "It was stopped for your next message.", timeout=LONG_MS
        )
        await words(page, 3)
        await page.keyboard.press("Escape")
        await over(page)
        await context.close()
