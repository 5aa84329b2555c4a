"""The chat page as a person uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import BrowserContext, Page, Route, expect

from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess

pytestmark = pytest.mark.usefixtures("worker")
LONG_MS = 60_000
MARKDOWN = """\
## Your order
| order | state |
|---|---|
| 4711 | on its way |

- outer with `code` and **weight**
    - inner

3. third

> earlier text

```python
def hello():  # greets
    return "<b>"
```
"""
JSON = '{"order": 4711}'


async def enter(context: BrowserContext, gateway: GatewayProcess, user: str) -> Page:
    page = await context.new_page()
    await page.goto(gateway.url)
    await page.get_by_label("User", exact=True).fill(user)
    await page.get_by_label("User", exact=True).press("Enter")
    return page


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Message").fill(text)
    await page.get_by_label("Message").press("Enter")


async def words(page: Page, most: int) -> None:
    """Wait until the last answer has so many words."""
    await page.wait_for_function(
        "most => (document.querySelector('article:last-child .answer')?.textContent ?? '').split(/\\s+/).length > most",
        arg=most,
        timeout=LONG_MS,
    )


async def at_length(page: Page, tokens: int) -> None:
    """Its answers end with so many tokens."""

    async def changed(route: Route) -> None:
        body = route.request.post_data_json
        await (route.fallback() if body is None else route.continue_(post_data={**body, "max_tokens": tokens}))

    await page.route("**/v1/requests?*", changed)


async def whole(gateway: GatewayProcess, page: Page, user: str) -> str:
    request_id = await page.locator("article").last.get_attribute("data-request")
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        reported = await http.get(f"/v1/requests/{request_id}", params={"user_id": user})
    return str(reported.json()["text"]).strip()


async def stored(gateway: GatewayProcess, user: str, count: int) -> None:
    """Until so many turns of the user are in the history."""
    client = httpx.AsyncClient(base_url=gateway.url, params={"user_id": user}, timeout=60)
    async with client as http, asyncio.timeout(120):
        while sum(one["turns"] for one in (await http.get("/v1/conversations")).json()["conversations"]) < count:
            await asyncio.sleep(0.1)


def past(answer: str) -> dict[str, Any]:
    usage = {"completion_tokens": 9}
    about = {"request_id": str(len(answer)), "prompt": "p", "finish_reason": "stop", "model_version": "m"}
    return {**about, "answer": answer, "usage": usage, "created_at": 0}


async def over(page: Page) -> None:
    await expect(page.locator("article").last).not_to_have_class("live", timeout=LONG_MS)


async def test_tokens_come_live_are_stopped_and_made_again(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "nina")
    await say(page, "tell me a long story")
    await words(page, 3)
    await expect(page.locator("article.live")).to_have_count(1)
    await page.keyboard.press("Escape")
    await over(page)
    await expect(page.locator("article .actions")).to_contain_text("It was stopped.")
    await expect(page.locator("#panel dd").last).to_have_text("paced")
    await expect(page.locator("#panel")).to_have_attribute("title", "paced@1")
    assert await page.locator(".answer").inner_text() == await whole(gateway, page, "nina")


async def test_a_stop_reaches_an_answer_whose_question_is_on_its_way(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "otto")
    asked, stopped = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        asked.set()
        await stopped.wait()
        await route.fallback()

    await page.route("**/v1/requests?*", late)
    await say(page, "tell me a long story")
    await asked.wait()
    await page.keyboard.press("Escape")
    stopped.set()
    await expect(page.locator("article .actions")).to_contain_text("stopped", timeout=LONG_MS)
    await over(page)


async def test_reasoning_is_a_fold_above_the_answer(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "rita")

    async def with_effort(route: Route) -> None:
        await route.continue_(post_data={**route.request.post_data_json, "reasoning_effort": "high", "max_tokens": 100})

    await page.route("**/v1/requests?*", with_effort)
    await say(page, "think first")
    fold = page.locator("article details.reasoning")
    await expect(fold).to_be_visible(timeout=LONG_MS)
    await over(page)
    await expect(fold.locator("summary")).to_have_text("Reasoning")
    await expect(fold.locator("div")).not_to_be_visible()
    await fold.locator("summary").click()
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        request_id = await page.locator("article").last.get_attribute("data-request")
        reported = (await http.get(f"/v1/requests/{request_id}", params={"user_id": "rita"})).json()
    assert await fold.locator("div").inner_text() == reported["reasoning"].strip()
    assert await page.locator(".answer").inner_text() == reported["text"].strip()


async def test_a_stop_is_for_the_answer_that_is_being_written(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "olga")
    await say(page, "tell me a long story")
    await words(page, 3)
    await say(page, "and another one")
    await expect(page.locator("article.live")).to_have_count(2)
    await page.keyboard.press("Escape")
    await expect(page.locator("article .actions").first).to_contain_text("It was stopped.")
    await words(page, 3)
    await expect(page.locator("article.live")).to_have_count(1)
    await page.keyboard.press("Escape")
    await over(page)
    assert await page.locator(".answer").last.inner_text() == await whole(gateway, page, "olga")


async def test_an_answer_made_again_takes_its_place_and_the_earlier_one_is_a_leaf_away(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "vera")
    await say(page, "tell me a long story")
    await words(page, 3)
    await page.keyboard.press("Escape")
    await over(page)
    first = await page.locator(".answer").inner_text()
    await page.get_by_role("button", name="Regenerate").click()
    await expect(page.locator(".count")).to_have_text("2/2")
    await words(page, len(first.split()) + 3)
    await page.get_by_role("button", name="Stop").click()
    await over(page)
    assert await page.locator(".answer").inner_text() == await whole(gateway, page, "vera")
    await page.get_by_role("button", name="Earlier answer").click()
    await expect(page.locator(".answer")).to_have_text(first)
    await stored(gateway, "vera", 2)
    await page.reload()
    await expect(page.locator(".count")).to_have_text("2/2")
    await expect(page.locator("article")).to_have_count(1)


async def test_an_answer_that_goes_on_grows_in_its_place_through_a_reload(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "gina")
    await say(page, "tell me a long story")
    await words(page, 3)
    await page.keyboard.press("Escape")
    await over(page)
    first = await page.locator(".answer").inner_text()
    await page.get_by_role("button", name="Go on").click()
    await words(page, len(first.split()) + 3)
    await page.keyboard.press("Escape")
    await over(page)
    joined = await page.locator(".answer").inner_text()
    assert joined == f"{first} {await whole(gateway, page, 'gina')}"
    await stored(gateway, "gina", 2)
    await page.reload()
    await expect(page.locator(".answer")).to_have_text(joined)
    async with page.expect_request("**/v1/requests*") as asked:
        await say(page, "and then?")
    assert (await asked.value).post_data_json["prompt"] == "and then?"
    await words(page, 1)
    await page.keyboard.press("Escape")
    await over(page)


async def test_what_is_typed_while_the_page_enters_is_kept(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await context.new_page()
    released = asyncio.Event()

    async def slowly(route: Route) -> None:
        await released.wait()
        await route.continue_()

    await page.route("**/v1/me*", slowly)
    await page.goto(gateway.url)
    await expect(page.get_by_label("User", exact=True)).to_be_disabled()
    await expect(page.get_by_label("Message")).to_be_disabled()
    released.set()
    await page.get_by_label("User", exact=True).fill("theo")
    await page.get_by_label("User", exact=True).press("Enter")
    await page.get_by_label("Message").fill("typed early")
    await expect(page.get_by_label("User", exact=True)).to_have_value("theo")
    await expect(page.get_by_label("Message")).to_have_value("typed early")


async def test_markdown_looks_like_what_it_says(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "mia")
    await page.route("**/v1/conversations/*", lambda route: route.fulfill(json={"turns": [past(MARKDOWN), past(JSON)]}))
    await page.get_by_role("button", name="New conversation").click()
    first, second = page.locator(".answer").nth(0), page.locator(".answer").nth(1)
    await expect(first.locator("table td")).to_have_text(["4711", "on its way"])
    await expect(first.locator("ul ul li")).to_have_text(["inner"])
    await expect(first.locator("ol")).to_have_attribute("start", "3")
    await expect(first.locator("pre .word").first).to_have_text("def")
    await expect(first.locator("pre .string")).to_have_text(['"<b>"'])
    await expect(first.locator("b")).to_have_count(0)
    await expect(second.locator("figcaption")).to_contain_text("json")
    await expect(second.locator("pre")).to_have_text('{\n  "order": 4711\n}')


async def test_a_reload_in_mid_answer_goes_on_where_it_was(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "rita")
    await say(page, "tell me a long story")
    await words(page, 5)
    before = await page.locator(".answer").inner_text()
    await page.reload()
    await words(page, len(before.split()) + 3)
    after = await page.locator(".answer").inner_text()
    assert after.startswith(before)
    await page.get_by_role("button", name="Stop").click()
    await over(page)
    assert await page.locator(".answer").inner_text() == await whole(gateway, page, "rita")


async def test_two_tabs_show_the_same(context: BrowserContext, gateway: GatewayProcess) -> None:
    one = await enter(context, gateway, "tom")
    two = await enter(context, gateway, "tom")
    await say(one, "to both of you")
    await words(two, 3)
    await two.get_by_role("button", name="Stop").click()
    for page in (one, two):
        await over(page)
    assert await one.locator(".answer").inner_text() == await two.locator(".answer").inner_text()
    await expect(two.locator("#conversations")).to_contain_text("to both of you")


async def test_what_a_user_writes_is_text_and_never_a_page(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "eve")
    await say(page, '<img src=x onerror="document.title=1"> [x](javascript:alert(1)) **bold**')
    await words(page, 2)
    await page.keyboard.press("Escape")
    await over(page)
    assert await page.locator("article img, article script, article a").count() == 0
    assert await page.title() == "Parley"


HOSTILE = {
    "quotes": ">" * 50_000 + " the end",
    "links": "[a](https://a.example) " * 20_000 + "the end",
    "lists": "\n".join(" " * 2 * depth + "- x" for depth in range(400)) + "\n\nthe end",
    "emphasis": "**" * 20_000 + " the end",
    "JSON": "[" * 50_000 + " the end",
    "brackets": "see " + "[a" * 30_000 + " the end",
    "code": "```\n" + "/*" * 30_000 + "\n```\n\nthe end",
    "rules": "a|b\n" + " " * 50_000 + "x\n\nthe end",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_an_answer_that_is_made_to_break_the_page_is_shown(
    context: BrowserContext, gateway: GatewayProcess, name: str
) -> None:
    page = await enter(context, gateway, "eve")
    turns = [past(HOSTILE[name]), past("a plain answer")]
    await page.route("**/v1/conversations/*", lambda route: route.fulfill(json={"turns": turns}))
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator("article .answer").first).to_contain_text("the end", timeout=LONG_MS)
    await expect(page.locator("article .answer").last).to_have_text("a plain answer", timeout=LONG_MS)


async def test_a_worker_that_dies_is_told_of_and_the_answer_goes_on(
    context: BrowserContext, gateway: GatewayProcess, worker: WorkerProcess, start_worker: Callable[[], WorkerProcess]
) -> None:
    page = await enter(context, gateway, "omar")
    await say(page, "tell me a long story")
    await words(page, 5)
    worker.kill()
    await expect(page.locator(".note")).to_contain_text("has paused", timeout=LONG_MS)
    before = await page.locator(".answer").inner_text()
    await asyncio.to_thread(start_worker)
    await words(page, len(before.split()) + 3)
    await expect(page.locator(".note")).to_contain_text("goes on")
    assert (await page.locator(".answer").inner_text()).startswith(before)
    await page.get_by_role("button", name="Stop").click()
    await over(page)
    assert await page.locator(".answer").inner_text() == await whole(gateway, page, "omar")


async def test_hits_of_a_search_are_marked_and_lead_to_their_conversation(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    hit = {"request_id": "r", "role": "user", "text": "Where is <b>my</b> parcel?", "created_at": 0, "similarity": 0.9}
    hits = {"hits": [{**hit, "conversation_id": "parcels"}]}
    page = await enter(context, gateway, "sara")
    await page.route("**/v1/search?*", lambda route: route.fulfill(json=hits))
    await page.keyboard.press("Control+k")
    await page.get_by_label("Search the history").fill("PARCEL")
    async with page.expect_request("**/v1/search?*") as asked:
        await page.keyboard.press("Enter")
    assert "user_id=sara" in (await asked.value).url
    await expect(page.locator("#hits mark")).to_have_text("parcel")
    await expect(page.locator("#hits b")).to_have_count(0)
    async with page.expect_request("**/v1/conversations/parcels*"):
        await page.locator(".hit").click()
    await expect(page.get_by_label("Message")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_follows_the_colours_of_the_system(
    context: BrowserContext, gateway: GatewayProcess, pictures: Path, scheme: str
) -> None:
    page = await context.new_page()
    await page.emulate_media(color_scheme=scheme)
    await page.goto(gateway.url)
    await expect(page.get_by_label("Message")).to_be_focused()
    ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(16, 21, 20)") is (scheme == "dark")
    await page.screenshot(path=pictures / f"{scheme}.png")
