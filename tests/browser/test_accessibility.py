"""The page before axe, which finds what keeps people out that do not see it, or do not use a mouse."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, expect

from tests.browser.test_page import JSON, past
from tests.browser.test_page_words import WIDE as MARKDOWN
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.npm import NODE, NPM, installed

pytestmark = pytest.mark.skipif(NODE is None or NPM is None, reason="node is not installed: axe was not run")
HIT = {"request_id": "r", "conversation_id": "c", "role": "user", "text": "my parcel", "created_at": 0, "similarity": 1}
NEWER = {"request_id": "s", "conversation_id": "c~0123abcd"}


async def test_axe_finds_nothing_in_any_view(context: BrowserContext, gateway: GatewayProcess) -> None:
    axe = (installed(Path(__file__).parent / "npm") / "axe-core" / "axe.min.js").read_text()
    page = await context.new_page()
    call = {"id": "1", "name": "look_up", "arguments": '{"word": "parcel"}'}
    turns = [past(MARKDOWN), {**past(JSON), "tool_calls": [call]}, {**past("cut"), "finish_reason": "length"}]
    rows = [{"conversation_id": "c", "title": "My parcel", "turns": 3, "last_at": 1}]
    await page.route("**/v1/conversations?*", lambda route: route.fulfill(json={"conversations": rows}))
    await page.route("**/v1/conversations/*", lambda route: route.fulfill(json={"turns": turns}))
    await page.route("**/v1/search?*", lambda route: route.fulfill(json={"hits": [{**HIT, "replaced_by": NEWER}]}))
    for scheme, width in (("light", 1100), ("dark", 390)):
        await page.emulate_media(color_scheme=scheme)
        await page.set_viewport_size({"width": width, "height": 800})
        await page.goto(gateway.url)
        await expect(page.locator("article")).to_have_count(3)
        await page.evaluate(axe)
        await page.get_by_role("button", name="Edit this question").first.click()
        await page.locator(".call summary").click()
        await page.get_by_role("button", name="Rewrite from a word of this answer").first.click()
        gone = page.get_by_text("The words of this answer are not kept one by one any more.")
        await expect(gone).to_be_visible()
        talk = await page.evaluate("axe.run().then(found => found.violations)")
        await page.get_by_role("button", name="Leave the answer as it is").click()
        await page.get_by_role("button", name="Cancel").click()
        if width < 700:
            await page.get_by_role("button", name="Conversations", exact=True).click()
        await page.get_by_role("button", name="Options of My parcel").click()
        talk += await page.evaluate("axe.run().then(found => found.violations)")
        await page.get_by_role("button", name="Close", exact=True).click()
        await page.get_by_role("button", name="Erase all…").click()
        talk += await page.evaluate("axe.run().then(found => found.violations)")
        await page.get_by_role("button", name="Keep them").click()
        await page.keyboard.press("Control+k")
        await page.keyboard.type("parcel\n")
        await expect(page.locator(".hit")).to_have_count(1)
        search = await page.evaluate("axe.run().then(found => found.violations)")
        found = [(one["id"], node["html"]) for one in talk + search for node in one["nodes"]]
        assert found == [], scheme
