"""The page before a gateway that asks for keys."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser, expect

from app.settings import Settings
from tests.integration.gateway.gateway_process import GatewayProcess


async def test_a_key_is_asked_for_and_says_who_one_is(browser: Browser, settings: Settings, tmp_path: Path) -> None:
    guarded = settings.model_copy(update={"gateway_api_keys": "key-of-nina-0123=nina"})
    with GatewayProcess(guarded, tmp_path / "gateway.log") as gateway:
        page = await browser.new_page()
        await page.goto(gateway.url)
        told = page.get_by_role("alert")
        await expect(told).not_to_be_visible()
        for key in ("not-a-key-at-all", "key-of-nina-0123"):
            await page.get_by_label("Key", exact=True).fill(key)
            await page.get_by_label("Key", exact=True).press("Enter")
            if key.startswith("not"):
                await expect(told).to_contain_text("is not known here")
        await expect(page.get_by_label("User", exact=True)).to_have_value("nina")
        assert not await page.get_by_label("User", exact=True).is_editable()
        await page.get_by_label("Message").fill("hello")
        async with page.expect_response("**/v1/requests") as asked:
            await page.get_by_label("Message").press("Enter")
        assert (await asked.value).status == 202
        await page.reload()
        await expect(page.locator(".prompt")).to_have_text("hello")
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_label("Key", exact=True)).to_be_visible()
        await expect(page.get_by_text("hello")).to_have_count(0)
        stored = await page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])")
        assert "nina" not in stored
        assert "hello" not in stored
        await page.close()
