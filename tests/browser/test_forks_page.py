"""Versions of a conversation: another answer, another question, and an answer that is rewritten from a word on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.async_api import BrowserContext, Page, Route, expect

from tests.browser.test_page import enter, over, say, stored, words
from tests.browser.test_page_conversations import stop
from tests.integration.gateway.gateway_process import GatewayProcess

pytestmark = pytest.mark.usefixtures("worker")


async def ask(page: Page, text: str) -> None:
    await say(page, text)
    await expect(page.locator(".prompt").last).to_have_text(text)
    await stop(page)


async def sent(page: Page, name: str) -> dict[str, Any]:
    """The body that the page sends when the last button of this name is pressed."""
    async with page.expect_request(lambda request: request.method == "POST" and "/v1/requests" in request.url) as asked:
        await page.get_by_role("button", name=name, exact=True).last.click()
    body: dict[str, Any] = (await asked.value).post_data_json
    return body


async def history(gateway: GatewayProcess, user: str) -> dict[str, list[tuple[str, str]]]:
    """Questions and answers of each of the user's conversations."""
    async with httpx.AsyncClient(base_url=gateway.url, params={"user_id": user}, timeout=60) as http:
        listed = (await http.get("/v1/conversations")).json()["conversations"]
        names = [one["conversation_id"] for one in listed]
        turns = {name: (await http.get(f"/v1/conversations/{name}")).json()["turns"] for name in names}
        return {name: [(one["prompt"], one["answer"]) for one in turns[name]] for name in names}


async def test_another_answer_hides_what_followed_and_what_follows_it_stays_with_it(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "fora")
    questions = page.locator(".prompt")
    await ask(page, "first question")
    await ask(page, "second question")
    async with page.expect_request(lambda request: request.method == "POST") as asked:
        await page.get_by_role("button", name="Regenerate").first.click()
    body = (await asked.value).post_data_json
    assert "prompt" not in body
    assert body["from"]["index"] == 0
    assert len(body["replaces"]) == 2
    assert body["replaces"][0] == body["from"]["request_id"]
    await expect(questions).to_have_text(["first question"])
    await expect(page.locator(".count")).to_have_text("2/2")
    await stop(page)
    await ask(page, "behind the other one")
    await stored(gateway, "fora", 4)
    for _ in ("as it was asked", "as it is read again"):
        await expect(questions).to_have_text(["first question", "behind the other one"])
        await page.get_by_role("button", name="Earlier answer").click()
        await expect(questions).to_have_text(["first question", "second question"])
        await page.reload()
    root = body["from"]["conversation_id"]
    kept = await history(gateway, "fora")
    assert [question for question, _ in kept[root]] == ["first question", "second question"]
    assert [question for question, _ in kept[body["conversation_id"]]] == ["first question", "behind the other one"]
    await expect(page.locator("#conversations li")).to_have_count(1)
    await page.get_by_role("button", name="Options of first question").click()
    await page.get_by_role("button", name="Delete conversation…").click()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await expect(page.get_by_role("dialog")).not_to_be_visible()
    assert await history(gateway, "fora") == {}


async def test_an_answer_is_rewritten_from_a_word_on_by_keyboard(
    context: BrowserContext, gateway: GatewayProcess, pictures: Path
) -> None:
    page = await enter(context, gateway, "wera")
    await say(page, "tell me a long story")
    await stop(page, 12)
    whole = await page.locator(".answer").inner_text()
    await page.get_by_role("button", name="Rewrite from a word of this answer").focus()
    await page.keyboard.press("Enter")
    slider = page.get_by_label("How much of it stays")
    await expect(slider).to_be_focused()
    await page.keyboard.press("Home")
    for _ in range(4):
        await page.keyboard.press("ArrowRight")
    await page.get_by_role("button", name="One word less").click()
    kept = " ".join(whole.split()[:4])
    await expect(page.locator(".cut .text span").first).to_have_text(kept)
    assert kept in str(await slider.get_attribute("aria-valuetext"))
    await page.set_viewport_size({"width": 375, "height": 667})
    await page.screenshot(path=pictures / "rewrite-phone.png")
    assert await page.evaluate("document.documentElement.scrollWidth") == 375
    body = await sent(page, "Go on from here")
    assert body["from"]["index"] == 4
    await expect(page.locator(".count")).to_have_text("2/2")
    await words(page, 8)
    await page.keyboard.press("Escape")
    await over(page)
    again = await page.locator(".answer").inner_text()
    assert again.split()[:4] == whole.split()[:4]
    await stored(gateway, "wera", 2)
    ((question, answer),) = (await history(gateway, "wera"))[body["conversation_id"]]
    assert question == "tell me a long story"
    assert answer.split() == again.split()
    await page.reload()
    await expect(page.locator(".answer")).to_have_text(again)
    await page.get_by_role("button", name="Earlier answer").click()
    await expect(page.locator(".answer")).to_have_text(whole)


async def test_a_hit_of_a_version_that_was_replaced_is_asked_for_and_shows_that_version_or_the_later_one(
    context: BrowserContext, gateway: GatewayProcess, pictures: Path
) -> None:
    first = "01935f6e-0000-7000-8000-000000000001"
    again = f"01935f6e-0000-7000-8000-000000000002.r-{first[-12:]}"
    about = {"finish_reason": "stop", "usage": {"completion_tokens": 9}, "model_version": "m"}
    turns = {
        "old": [
            {**about, "request_id": first, "prompt": "one", "answer": "first", "created_at": 1},
            {**about, "request_id": "x", "prompt": "two", "answer": "second", "created_at": 2},
        ],
        "old~0123abcd": [{**about, "request_id": again, "prompt": "one", "answer": "again", "created_at": 3}],
    }
    talks = [{"conversation_id": name, "title": "one", "turns": 1, "last_at": 1_700_000_000_000} for name in turns]
    hits = [
        {"request_id": request, "conversation_id": name, "role": "user", "text": text, "created_at": 0, "similarity": 1}
        for request, name, text in (("x", "old", "two"), (again, "old~0123abcd", "one"))
    ]
    page = await enter(context, gateway, "hita")
    await page.route("**/v1/conversations?*", lambda route: route.fulfill(json={"conversations": talks}))

    async def turns_of(route: Route) -> None:
        name = urlsplit(route.request.url).path.rpartition("/")[2]
        await route.fulfill(json={"turns": turns.get(name, [])})

    await page.route("**/v1/conversations/*", turns_of)
    newer = {"request_id": again, "conversation_id": "old~0123abcd"}

    async def found(route: Route) -> None:
        everything = "include_replaced=true" in route.request.url
        replaced = [{**hits[0], "replaced_by": newer}] if everything else []
        await route.fulfill(json={"hits": [*replaced, {**hits[1], "replaced_by": None}]})

    await page.route("**/v1/search?*", found)
    await page.reload()
    await page.get_by_role("button", name="one", exact=True).click()
    await expect(page.locator(".answer")).to_have_text(["again"])
    await page.keyboard.press("Control+k")
    await page.keyboard.type("one")
    await expect(page.locator(".hit small")).to_have_text(re.compile("one · a later version · You"))
    await page.get_by_label("replaced, too").check()
    await expect(page.locator(".hit small").nth(0)).to_contain_text("one · replaced by a later version · You")
    await expect(page.locator(".hit small").nth(1)).to_contain_text("one · a later version · You")
    for scheme, width in (("wide", 1100), ("phone", 375)):
        await page.set_viewport_size({"width": width, "height": 700})
        await page.screenshot(path=pictures / f"search-{scheme}.png")
        assert await page.evaluate("document.documentElement.scrollWidth") == width
    await page.locator(".hit").first.click()
    await expect(page.locator(".answer")).to_have_text(["first", "second"])
    await expect(page.locator(".count")).to_have_text("1/2")
    await page.keyboard.press("Control+k")
    await page.get_by_role("button", name="Show the later version").click()
    await expect(page.locator(".answer")).to_have_text(["again"])
    await expect(page.locator("article.found")).to_have_count(1)
