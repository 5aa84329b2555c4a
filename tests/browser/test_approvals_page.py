"""The page for desks, and the card in the chat for what users decide, in two browsers before one worker each."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, BrowserContext, Page, Route, expect

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.browser.test_page import LONG_MS, enter, say
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.npm import NODE, NPM, installed
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings
from tests.integration.worker.test_tools_over_kafka import calls_of, result

POLICY = '[waits]\n[tools.look_up]\napprove = {{ by = "{by}", within_s = 600, shows_question = true }}\n'
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string"}, "count": {"type": "integer", "description": "So many"}},
}
TOOL = {"name": "look_up", "parameters": SCHEMA, "description": "Looks a word up in the catalogue."}
TOOLS = [{"type": "function", "function": TOOL}]
ASKED = "My kettle came broken, and I want my 49.90 back. It is the second one! " + "w" * 200
REFUND = {
    "order_number": "4711",
    "amount": 49.9,
    "express": True,
    "to": "card",
    "items": [{"sku": "kettle", "count": 1}],
    "text": "Dear Omar,\n\nyour parcel is lost. " * 40 + "w" * 400,
}


@pytest.fixture(scope="module", params=["desk"])
def by(request: pytest.FixtureRequest) -> str:
    """Who decides."""
    return str(request.param)


@pytest.fixture(scope="module")
def settings(by: str, chromium: str, kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("settings")
    (folder / "policy.toml").write_text(POLICY.format(by=by))
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    own: dict[str, Any] = {"policy": folder / "policy.toml", "gateway_tools": folder / "tools.json", "max_tokens": 8}
    return module_settings(kafka, folder, partitions=1, **own)


async def asked(gateway: GatewayProcess, user: str) -> None:
    body = {"prompt": f"hello from {user}", "max_tokens": 1, "tools": TOOLS, "tool_mode": "kafka"}
    async with httpx.AsyncClient(base_url=gateway.url, params={"user_id": user}, timeout=60) as http:
        assert (await http.post("/v1/requests", json=body)).status_code == 202


async def desk(context: BrowserContext, gateway: GatewayProcess, name: str) -> Page:
    page = await context.new_page()
    await page.clock.install()
    await page.goto(f"{gateway.url}/approvals")
    await page.get_by_label("Your name").fill(name)
    await page.get_by_label("Your name").press("Enter")
    return page


async def open_list(context: BrowserContext, calls: list[dict[str, Any]], *, has_more: bool) -> Page:
    """A page whose gateway always lists these calls."""
    you = {"name": "ali", "desks": ["desk"], "may_name": False}
    found = {"approvals": calls, "decided": [], "has_more": has_more, "version": "1", "you": you}

    async def listed(route: Route) -> None:
        await asyncio.sleep(1.0 if "wait_s" in route.request.url else 0)
        await route.fulfill(json=found)

    page = await context.new_page()
    await page.route("**/v1/approvals?*", listed)
    return page


@pytest.mark.usefixtures("worker")
async def test_two_of_a_desk_decide_by_keyboard_and_see_each_other(browser: Browser, gateway: GatewayProcess) -> None:
    complaints: list[str] = []
    context = await browser.new_context()
    context.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    ali = await desk(context, gateway, "ali")
    other = await browser.new_context(has_touch=True, viewport={"width": 390, "height": 844})
    bob = await desk(other, gateway, "bob")
    for page in (ali, bob):
        await expect(page.get_by_role("heading", name="Nothing waits")).to_be_visible(timeout=LONG_MS)
    for user in ("nina", "omar", "uma"):
        await asked(gateway, user)
        for page in (ali, bob):  # without a reload
            await expect(page.get_by_role("article").filter(has_text=f"for {user}")).to_be_visible(timeout=LONG_MS)
    assert await ali.title() == "(3) Approvals – Parley"
    asking = ali.get_by_role("article").filter(has_text="for omar")
    await expect(asking).to_contain_text("Looks a word up in the catalogue.")
    await expect(asking.locator("blockquote")).to_have_text("The user wrotehello from omar")
    await expect(ali.locator("#heard")).to_contain_text("new call waits")
    # A change, with the keyboard alone: what cannot be read and what the tool does not take is told at its field.
    nina = ali.get_by_role("article").filter(has_text="for nina")
    await nina.get_by_role("button", name="Change Look up").focus()
    await ali.keyboard.press("Enter")
    await expect(nina.get_by_label("Word")).to_be_focused()
    await ali.keyboard.press("Control+A")
    await ali.keyboard.type("kettle")
    await ali.keyboard.press("Tab")
    await ali.keyboard.type("many")
    await ali.keyboard.press("Enter")
    await expect(nina.get_by_role("alert")).to_have_text("“Count” cannot be read.")
    await expect(nina.get_by_label("Count")).to_be_focused()
    await ali.keyboard.press("Control+A")
    await ali.keyboard.type("2.5")
    await ali.keyboard.press("Enter")
    await expect(nina.get_by_role("alert")).to_contain_text("“Count”: This does not fit what the tool takes: a whole")
    await ali.keyboard.press("Control+A")
    await ali.keyboard.type("2")
    await ali.keyboard.press("Enter")
    own = "count 2 for nina. Approved with changes by you."
    await expect(ali.locator("#decided")).to_contain_text(own, timeout=LONG_MS)
    theirs = "Look up: word kettle, count 2 for nina. Approved with changes by ali."
    await expect(bob.locator("#decided")).to_contain_text(theirs, timeout=LONG_MS)
    async with Client(gateway.settings) as client:
        (call,) = await calls_of(client, "nina")
        assert json.loads(call.arguments) == {"word": "kettle", "count": 2}
        await result(client, call, "packed")
    # What the other one decides while a reason is being written.
    omar = ali.get_by_role("article").filter(has_text="for omar")
    await omar.get_by_role("button", name="Reject Look up").click()
    await expect(omar.get_by_label("Reason")).to_be_focused()
    await ali.keyboard.type("too late")
    theirs = bob.get_by_role("article").filter(has_text="for omar")
    where = await theirs.get_by_role("button", name="Approve Look up").bounding_box()
    assert where is not None
    # Impatiently: the next card comes to lie there, and is not decided by that while it has only just moved.
    await bob.clock.pause_at(await bob.evaluate("Date.now()") / 1000 + 60)
    for _ in range(8):
        await bob.touchscreen.tap(where["x"] + 20, where["y"] + 20)
        await asyncio.sleep(0.1)
    await bob.clock.resume()
    await expect(bob.locator("#decided")).to_contain_text("for omar. Approved by you.", timeout=LONG_MS)
    await expect(ali.locator("#decided")).to_contain_text("for omar. Approved by bob.", timeout=LONG_MS)
    await expect(omar).to_have_count(0)
    await expect(ali.get_by_role("heading", name="Look up")).to_be_focused()  # the next one
    # Escape leaves the form, and a rejection is read by the model.
    uma = ali.get_by_role("article").filter(has_text="for uma")
    await uma.get_by_role("button", name="Reject Look up").click()
    await ali.keyboard.press("Escape")
    await expect(uma.get_by_label("Reason")).to_have_count(0)
    await uma.get_by_role("button", name="Reject Look up").click()
    await ali.keyboard.type("not this one")
    await uma.get_by_role("button", name="Reject", exact=True).click()
    await expect(bob.locator("#decided")).to_contain_text("for uma. Rejected by ali.", timeout=LONG_MS)
    await expect(ali.get_by_role("heading", name="Nothing waits")).to_be_visible()
    assert await ali.title() == "Approvals – Parley"
    assert [one for one in complaints if "422" not in one] == []
    await context.close()
    await other.close()


@pytest.mark.usefixtures("worker")
async def test_the_page_says_for_what_an_answer_waits_and_others_pass_it(
    context: BrowserContext, gateway: GatewayProcess, pictures: Path
) -> None:
    page = await enter(context, gateway, "wanda")
    choice = page.get_by_label("When it is answered").locator("option")
    note = page.locator("article .note").first
    changes: dict[str, Any] = {"max_tokens": 8}

    async def changed(route: Route) -> None:
        await route.continue_(post_data={**route.request.post_data_json, **changes})

    await page.route("**/v1/requests?*", changed)
    await say(page, "What does it mean?")
    for _ in ("as it is asked", "as it is read again"):
        await expect(note).to_have_text("Your answer waits until somebody has approved this.", timeout=LONG_MS)
        await expect(choice.first).to_have_text("Let it wait, and ask")
        await expect(choice).to_have_count(3)  # nothing can be added to one that sleeps
        await page.reload()
    await expect(note).to_be_visible(timeout=LONG_MS)
    await page.get_by_label("Tools", exact=True).uncheck()
    await say(page, "And something else meanwhile?")
    await expect(page.locator("article").last).to_have_attribute("data-state", "length", timeout=LONG_MS)
    await expect(note).to_have_text("Your answer waits until somebody has approved this.")
    for name, width in (("waits", 1100), ("waits-phone", 375)):
        await page.set_viewport_size({"width": width, "height": 700})
        await page.screenshot(path=pictures / f"{name}.png")
        assert await page.evaluate("document.documentElement.scrollWidth") == width
    # The time comes, and the answer with it.
    changes["not_before"] = int(time.time() * 1000) + 30_000
    await page.get_by_role("button", name="New").first.click()
    await say(page, "What is it now?")
    await expect(note).to_have_text("Your question waits for its time.", timeout=LONG_MS)
    await expect(page.locator("article")).to_have_attribute("data-state", "length", timeout=LONG_MS)
    await expect(note).not_to_be_visible()
    # The other two, as a worker that this one is not would write them.
    async with Client(gateway.settings) as client:
        for kind, told in (
            ("tool", "Your answer waits for a tool; it goes on when that has answered."),
            ("answer", "Your answer waits for another one."),
            ("a kind of a later version", "Your answer waits, and goes on by itself."),
        ):
            await page.unroute("**/v1/requests?*")
            await page.route("**/v1/requests?*", waits(client, kind))
            await page.get_by_role("button", name="New").first.click()
            await say(page, "What is it now?")
            await expect(note).to_have_text(told, timeout=LONG_MS)


def waits(client: Client, kind: str) -> Callable[[Route], Awaitable[None]]:
    async def asked(route: Route) -> None:
        body = route.request.post_data_json
        notice = {"code": "waiting", "message": "", "details": {"kind": kind, "wait_id": "one", "name": "look_up"}}
        about = {"request_id": body["request_id"], "conversation_id": body["conversation_id"], "user_id": "wanda"}
        about |= {"type": "notice", "index": 0, "epoch": 0, "timestamp": int(time.time() * 1000)}
        await client.send("tokens", {**about, "notice": notice}, "wanda")
        await route.fulfill(status=202, json={"request_id": body["request_id"]})

    return asked


@pytest.mark.usefixtures("worker")
async def test_a_key_of_no_desk_is_told_so(browser: Browser, settings: Settings, tmp_path: Path) -> None:
    keys = "key-of-nina-0123=nina, key-of-the-desk-01=ali#approver:desk"
    with GatewayProcess(settings.model_copy(update={"gateway_api_keys": keys}), tmp_path / "gateway.log") as guarded:
        page = await browser.new_page()
        await page.goto(f"{guarded.url}/approvals")
        for key, told in (("nothing-that-is-known", "is not known here"), ("key-of-nina-0123", "is of no desk")):
            await page.get_by_label("Key", exact=True).fill(key)
            await page.get_by_label("Key", exact=True).press("Enter")
            await expect(page.locator("#wrong")).to_contain_text(told)
        await page.get_by_label("Key", exact=True).fill("key-of-the-desk-01")
        await page.get_by_label("Key", exact=True).press("Enter")
        await expect(page.get_by_text("You are ali (desk: desk)")).to_be_visible()
        await expect(page.get_by_label("Your name")).not_to_be_visible()
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_label("Key", exact=True)).to_be_visible()
        await page.close()


@pytest.mark.parametrize("by", ["user"], indirect=True)
@pytest.mark.usefixtures("worker")
async def test_a_user_decides_in_the_chat(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "nina")
    await say(page, "What does it mean?")
    card = page.get_by_role("article", name="Look up")
    await expect(card).to_contain_text("The assistant asks you before it does this", timeout=LONG_MS)
    await expect(page.get_by_text("Your answer waits for your decision.")).to_be_visible()
    await page.reload()
    await expect(card).to_be_visible(timeout=LONG_MS)
    await card.get_by_role("button", name="Change Look up").click()
    await card.get_by_label("Word").fill("kettle")
    await asyncio.sleep(2.5)  # what is asked now and then changes nothing of what is written
    await card.get_by_role("button", name="Approve with changes").click()
    await expect(card).to_have_count(0, timeout=LONG_MS)
    await expect(page.get_by_text("Approved with changes by you.")).to_be_visible()
    async with Client(gateway.settings) as client:
        (call,) = await calls_of(client, "nina")
        assert json.loads(call.arguments) == {"word": "kettle"}
        await result(client, call, "packed")
    await expect(card).to_contain_text("The assistant asks you", timeout=LONG_MS)  # of the next round
    await card.get_by_role("button", name="Reject Look up").click()
    await card.get_by_label("Reason").fill("enough")
    await card.get_by_role("button", name="Reject", exact=True).click()
    await expect(card).to_have_count(0, timeout=LONG_MS)


async def test_a_number_that_javascript_would_round_stays_as_it_is(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    calls = [
        {"wait_id": name, "user_id": "nina", "request_id": name, "name": name, "arguments": arguments}
        | {"conversation_id": "c", "by": "desk", "since": 0, "until": 9e12, "parameters": {}}
        for name, arguments in (
            ("large", '{"account": 9007199254740993}'),
            ("fine", '{"share": 0.1234567890123456789}'),
            ("plain", '{"text": "9007199254740993", "amount": -12.50, "many": [1e3]}'),
        )
    ]
    page = await open_list(context, calls, has_more=False)
    await page.goto(f"{gateway.url}/approvals")
    for name, shown in (("Large", "9007199254740993"), ("Fine", "0.1234567890123456789")):
        card = page.get_by_role("article", name=name)
        await expect(card).to_contain_text(shown)
        await expect(card.get_by_role("button", name="Approve")).to_be_visible()
        await expect(card.get_by_role("button", name="Change")).to_have_count(0)
    card = page.get_by_role("article", name="Plain")
    await card.get_by_role("button", name="Change").click()
    for text in ("900719925474099301", "1.50000000000000000001"):
        await card.get_by_label("Amount").fill(text)
        await card.get_by_role("button", name="Approve with changes").click()
        await expect(card.get_by_role("alert")).to_have_text("“Amount” cannot be read.")


async def test_where_arguments_of_arguments_are_no_json_is_told(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    one = {"wait_id": "c", "user_id": "nina", "request_id": "r", "name": "refund", "conversation_id": "c", "by": "desk"}
    items = {"since": 0, "until": 9e12, "parameters": {}, "arguments": '{"items": [{"sku": "kettle", "count": 1}]}'}
    page = await open_list(context, [one | items], has_more=False)
    await page.goto(f"{gateway.url}/approvals")
    card = page.get_by_role("article", name="Refund")
    await card.get_by_role("button", name="Change").click()
    text = await card.get_by_label("Items").input_value()
    for wrong, where in (
        (text.replace('"kettle",', '"kettle"'), "line 4, at character 5"),
        ('[{"sku": kettle}]', "line 1, at character 10"),
        ('[{"sku": 1}', "line 1, at character 12"),
    ):
        await card.get_by_label("Items").fill(wrong)
        await card.get_by_role("button", name="Approve with changes").click()
        told = f"“Items” cannot be read: something is wrong in {where}."
        await expect(card.get_by_role("alert")).to_have_text(told)
        await expect(card.get_by_label("Items")).to_be_focused()


@pytest.mark.skipif(NODE is None or NPM is None, reason="node is not installed: axe was not run")
async def test_axe_finds_nothing_and_nothing_is_too_wide(
    context: BrowserContext, gateway: GatewayProcess, pictures: Path
) -> None:
    axe = (installed(Path(__file__).parent / "npm") / "axe-core" / "axe.min.js").read_text()
    about = {"conversation_id": "c", "by": "desk", "since": 0, "until": 9e12}
    calls = [
        {"wait_id": f"call_{name}", "user_id": "acme/nina", "request_id": name, "name": name, **about}
        | {"arguments": json.dumps(given), "parameters": {"properties": {"amount": {"type": "number"}}}}
        | {"description": "Pays money back." if given else "", "question": ASKED if given else ""}
        for name, given in (("refund", REFUND), ("close_account", {}))
    ]
    page = await open_list(context, calls, has_more=True)
    for scheme, width in (("light", 1100), ("dark", 320)):
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await page.set_viewport_size({"width": width, "height": 800})
        await page.goto(f"{gateway.url}/approvals")
        await expect(page.get_by_role("article")).to_have_count(2)
        await page.evaluate(axe)
        violations = await page.evaluate("axe.run().then(found => found.violations)")
        await page.screenshot(path=pictures / f"{scheme}.png", full_page=True)
        await page.get_by_role("button", name="Change Refund").click()
        await page.get_by_role("button", name="Reject Close account").click()
        violations += await page.evaluate("axe.run().then(found => found.violations)")
        await page.screenshot(path=pictures / f"{scheme}-forms.png", full_page=True)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        complaints = [(one["id"], node["html"]) for one in violations for node in one["nodes"]]
        assert complaints == [], f"{scheme}: {complaints}"
