"""The conversations of the chat page: edited, named, exported, taken off the list, and where they stand in it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, Route, expect

from tests.browser.test_page import enter, over, past, say, stored, words
from tests.integration.gateway.gateway_process import GatewayProcess

pytestmark = pytest.mark.usefixtures("worker")


async def stop(page: Page, most: int = 3) -> None:
    await words(page, most)
    await page.keyboard.press("Escape")
    await over(page)


async def edit(page: Page, number: int, text: str) -> dict[str, Any]:
    """Send the question with this number again, as `text`; returns what the page has sent."""
    await page.get_by_role("button", name="Edit this question").nth(number).click()
    await page.get_by_label("Edited question").fill(text)
    async with page.expect_request("**/v1/requests?*") as asked:
        await page.get_by_label("Edited question").press("Enter")
    body: dict[str, Any] = (await asked.value).post_data_json
    return body


async def test_an_edited_question_takes_its_place_and_leaves_out_what_followed(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "edda")
    questions = page.locator("article .prompt")
    for number, text in enumerate(("first question", "second question")):
        await say(page, text)
        await expect(questions).to_have_count(number + 1)
        await stop(page)
    first_answer = await page.locator(".answer").first.inner_text()
    sent = await edit(page, 1, "second question, better")
    assert sent["prompt"] == "second question, better"
    assert sent["from"]["index"] == 0
    first = sent["from"]["conversation_id"]
    await expect(questions).to_have_text(["first question", "second question, better"])
    await stop(page)
    sent = await edit(page, 0, "another beginning")
    # Both edits are versions of the one conversation, and each has a name of its own.
    assert sent["from"]["conversation_id"] == first
    assert sent["conversation_id"].startswith(f"{first}~")
    await expect(questions).to_have_text(["another beginning"])
    await stop(page)
    await say(page, "and on")
    await expect(questions).to_have_text(["another beginning", "and on"])
    await stop(page)
    await stored(gateway, "edda", 5)

    for _ in ("as it was asked", "as it is read again"):
        await expect(questions).to_have_text(["another beginning", "and on"])
        await page.get_by_role("button", name="Earlier question").click()
        await expect(questions).to_have_text(["first question", "second question, better"])
        await expect(page.locator(".answer").first).to_have_text(first_answer)
        await page.get_by_role("button", name="Earlier question").nth(1).click()
        await expect(questions).to_have_text(["first question", "second question"])
        await page.reload()
    # What follows an earlier version stays with that version.
    await page.get_by_role("button", name="Earlier question").click()
    await say(page, "on from the first")
    await expect(questions).to_have_text(["first question", "second question, better", "on from the first"])
    await stop(page)
    await stored(gateway, "edda", 6)
    await page.reload()
    await page.get_by_role("button", name="Earlier question").click()
    await expect(questions).to_have_text(["first question", "second question, better", "on from the first"])


async def test_an_edit_in_mid_answer_stops_that_answer(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "emil")
    await say(page, "tell me a long story")
    await words(page, 3)
    async with page.expect_request(lambda request: request.method == "DELETE"):
        await edit(page, 0, "a short one")
    await expect(page.locator("article .prompt")).to_have_text(["a short one"])
    await stop(page)


async def test_a_title_and_a_removal_are_in_all_tabs_and_outlive_a_reload(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    one = await enter(context, gateway, "tina")
    await say(one, "to be renamed")
    await stop(one)
    await stored(gateway, "tina", 1)
    two = await enter(context, gateway, "tina")
    await expect(two.locator("#conversations")).to_contain_text("to be renamed")
    await one.get_by_role("button", name="Options of to be renamed").click()
    await one.get_by_label("Title in this browser").fill("My story")
    await one.get_by_label("Title in this browser").press("Enter")
    for page in (one, two):
        await expect(page.locator("#conversations li")).to_have_text("My story⋯")
    await two.reload()
    await expect(two.locator("#conversations li")).to_have_text("My story⋯")
    await two.get_by_role("button", name="Options of My story").click()
    await two.get_by_role("button", name="Remove from the list").click()
    await expect(two.locator("article")).to_have_count(0)
    for page in (one, two):
        await expect(page.locator("#conversations")).not_to_contain_text("My story")
    await two.reload()
    await expect(two.get_by_label("Message")).to_be_focused()
    await expect(two.locator("#conversations li")).to_have_count(0)


async def test_a_conversation_is_saved_as_markdown_and_as_json(
    context: BrowserContext, gateway: GatewayProcess, tmp_path: Path
) -> None:
    page = await enter(context, gateway, "xenia")
    await say(page, "to be saved")
    await stop(page)
    answer = await page.locator(".answer").inner_text()
    await stored(gateway, "xenia", 1)
    await page.get_by_role("button", name="Options of to be saved").click()
    texts = {}
    for kind, name in (("Markdown", "to-be-saved.md"), ("JSON", "to-be-saved.json")):
        async with page.expect_download() as saved:
            await page.get_by_role("button", name=f"Export as {kind}").click()
        download = await saved.value
        assert download.suggested_filename == name
        await download.save_as(tmp_path / name)
        texts[kind] = (tmp_path / name).read_text()
    assert texts["Markdown"].split() == f"# to be saved ## You to be saved ## Answer {answer}".split()
    assert json.loads(texts["JSON"])["turns"][0]["answer"].strip() == answer


async def test_a_conversation_is_deleted_on_the_server_in_mid_answer_and_others_stay(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "dela")
    await say(page, "to be kept")
    await stop(page)
    await stored(gateway, "dela", 1)
    await page.get_by_role("button", name="New conversation").click()
    await say(page, "to be deleted")
    await words(page, 2)
    other = await enter(context, gateway, "dela")
    await other.get_by_role("button", name="to be deleted", exact=True).click()
    await expect(other.locator("article .prompt")).to_have_text(["to be deleted"])
    await page.get_by_role("button", name="Options of to be deleted").click()
    await page.get_by_role("button", name="Delete conversation…").click()
    question = page.get_by_role("dialog", name="Delete conversation")
    await expect(question).to_contain_text("This deletes “to be deleted” on the server")
    await question.get_by_role("button", name="Keep it").click()
    await expect(page.locator("#conversations li")).to_have_count(2)

    await page.get_by_role("button", name="Options of to be deleted").click()
    await page.get_by_role("button", name="Delete conversation…").click()
    async with page.expect_response(lambda reply: reply.request.method == "DELETE") as deleted:
        await question.get_by_role("button", name="Delete", exact=True).click()
    assert (await (await deleted.value).json())["object"] == "conversation.deleted"
    await expect(question).not_to_be_visible()
    for tab in (page, other):
        await expect(tab.locator("article")).to_have_count(0)
        await expect(tab.locator("#conversations li")).to_have_text(["to be kept⋯"])
    await page.reload()
    await expect(page.locator("#conversations li")).to_have_text(["to be kept⋯"])
    await page.get_by_role("button", name="to be kept", exact=True).click()
    await expect(page.locator("article .prompt")).to_have_text(["to be kept"])


async def test_a_deletion_that_does_not_reach_the_gateway_is_told_and_can_be_tried_again(
    browser: Browser, gateway: GatewayProcess
) -> None:
    context = await browser.new_context()  # the browser itself complains of what it cannot load
    page = await enter(context, gateway, "offa")
    await say(page, "to be deleted")
    await stop(page)
    await page.get_by_role("button", name="Options of to be deleted").click()
    await page.get_by_role("button", name="Delete conversation…").click()
    question = page.get_by_role("dialog", name="Delete conversation")
    await context.set_offline(True)
    await question.get_by_role("button", name="Delete", exact=True).click()
    await expect(question.get_by_role("alert")).to_contain_text("The server cannot be reached.")
    await expect(page.locator("#conversations li")).to_have_count(1)
    await context.set_offline(False)
    await question.get_by_role("button", name="Delete", exact=True).click()
    await expect(question).not_to_be_visible()
    await expect(page.locator("#conversations li")).to_have_count(0)
    await context.close()


async def test_all_can_be_erased_on_the_server(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "era")
    await say(page, "to be forgotten")
    await stop(page)
    await stored(gateway, "era", 1)
    other = await enter(context, gateway, "era")
    await expect(other.locator("#conversations")).to_contain_text("to be forgotten")
    await page.get_by_role("button", name="Erase all…").click()
    async with page.expect_response(lambda reply: reply.request.method == "DELETE") as erased:
        await page.get_by_role("button", name="Erase all", exact=True).click()
    assert (await erased.value).status == 202
    for tab in (page, other):
        await expect(tab.locator("article")).to_have_count(0)
        await expect(tab.locator("#conversations li")).to_have_count(0)
    await page.reload()
    await expect(page.get_by_label("Message")).to_be_focused()
    await expect(page.locator("#conversations li")).to_have_count(0)


async def test_what_is_being_answered_is_at_the_top_at_once(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "lars")
    for text in ("the older one", "the newer one"):
        await page.get_by_role("button", name="New conversation").click()
        await say(page, text)
        await words(page, 2)
        rows = page.locator("#conversations li")
        await expect(rows.first).to_have_text(f"{text}⋯")
        await expect(page.locator("article.live")).to_have_count(1)
        await page.keyboard.press("Escape")
        await over(page)
    await expect(page.locator("#conversations h2")).to_have_text(["Today"])


async def test_the_list_is_by_days(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await context.new_page()
    await page.clock.set_fixed_time("2026-11-26T12:00:00")
    noon = await page.evaluate("Date.now()")
    day = 86_400_000
    rows = [
        {"conversation_id": str(days), "title": f"{days} days ago", "turns": 1, "last_at": noon - days * day}
        for days in (0, 1, 5, 40)
    ]
    await page.route("**/v1/conversations?*", lambda route: route.fulfill(json={"conversations": rows}))
    await page.goto(gateway.url)
    headings = page.locator("#conversations h2")
    await expect(headings).to_have_text(["Today", "Yesterday", "Last 7 days", "October 2026"])


async def test_an_empty_page_has_examples_that_are_asked_by_a_click(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "nova")
    example = page.get_by_role("list", name="Examples").get_by_role("button").first
    text = await example.inner_text()
    await example.click()
    await expect(page.locator(".prompt")).to_have_text(text)
    await expect(page.get_by_role("list", name="Examples")).not_to_be_visible()
    await stop(page)


async def test_a_model_can_be_chosen_where_there_are_several(browser: Browser, gateway: GatewayProcess) -> None:
    context = await browser.new_context()  # the browser itself complains of the refusal
    page = await context.new_page()
    names = {"data": [{"id": "small"}, {"id": "large"}]}
    await page.route("**/v1/models*", lambda route: route.fulfill(json=names))
    await page.goto(gateway.url)
    await page.get_by_label("Model", exact=True).select_option("large")
    bodies = []
    async with page.expect_response("**/v1/requests?*"):
        page.on("request", lambda request: bodies.append(request.post_data_json) if request.post_data else None)
        await say(page, "by the large one")
    assert [body["model"] for body in bodies] == ["large"]
    # Nobody serves it here: that is said in words, and without what the worker says to programs.
    await expect(page.locator("#banner")).to_have_text("This model is not there any more. Choose another one.")
    await expect(page.get_by_label("Message")).to_have_value("by the large one")
    await page.reload()
    await expect(page.get_by_label("Model", exact=True)).to_have_value("large")
    await context.close()


async def test_without_a_choice_of_models_there_is_none(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await context.new_page()
    async with page.expect_response("**/v1/models*"):
        await page.goto(gateway.url)
    await expect(page.get_by_role("list", name="Examples").get_by_role("button").first).to_be_visible()
    await expect(page.get_by_label("Model", exact=True)).not_to_be_visible()


async def test_who_reads_above_stays_there_and_jumps_to_the_latest(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await context.new_page()
    turns = [past("a line\n\n" * length) for length in (30, 31, 32)]
    await page.route("**/v1/conversations/*", lambda route: route.fulfill(json={"turns": turns}))
    await page.goto(gateway.url)
    await expect(page.locator("article")).to_have_count(3)
    latest = page.get_by_role("button", name="Latest")
    await expect(latest).not_to_be_visible()
    await page.locator("#turns").evaluate("turns => turns.scrollTop = 0")
    await expect(latest).to_be_visible()
    await say(page, "and one more")
    await expect(latest).not_to_be_visible()
    await page.locator("#turns").evaluate("turns => turns.scrollTop = 0")
    await words(page, 5)
    await expect(latest).to_be_visible()
    assert await page.locator("#turns").evaluate("turns => turns.scrollTop") == 0
    await latest.click()
    await expect(latest).not_to_be_visible()
    await expect(page.get_by_label("Message")).to_be_focused()
    await stop(page)


async def test_on_a_narrow_screen_the_list_gives_way_to_the_search_and_to_escape(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "mara")
    talk = {"conversation_id": "old", "title": "an earlier one", "turns": 2, "last_at": 1_700_000_000_000}
    await page.route("**/v1/conversations?*", lambda route: route.fulfill(json={"conversations": [talk]}))
    await page.set_viewport_size({"width": 375, "height": 700})
    await page.reload()
    shown, menu = page.get_by_text("an earlier one"), page.get_by_role("button", name="Conversations", exact=True)
    await expect(shown).not_to_be_visible()
    await menu.click()
    await expect(shown).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(shown).not_to_be_visible()
    await expect(menu).to_be_focused()
    await menu.click()
    await page.get_by_role("button", name="Search").first.click()
    await expect(shown).not_to_be_visible()
    await expect(menu).to_have_attribute("aria-expanded", "false")
    await expect(page.get_by_label("Search the history")).to_be_in_viewport()


async def test_a_list_that_is_opened_while_the_page_begins_stays_open(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "mira")
    await page.set_viewport_size({"width": 375, "height": 700})
    may_answer = asyncio.Event()

    async def slow(route: Route) -> None:
        await may_answer.wait()
        await route.continue_()

    talk = {"conversation_id": "old", "title": "an earlier one", "turns": 2, "last_at": 1_700_000_000_000}
    await page.route("**/v1/conversations?*", lambda route: route.fulfill(json={"conversations": [talk]}))
    await page.route("**/v1/me?*", slow)
    await page.reload()
    menu = page.get_by_role("button", name="Conversations", exact=True)
    await menu.click()
    may_answer.set()
    await expect(page.get_by_text("an earlier one")).to_be_visible()
    await expect(page.get_by_label("Message")).to_be_enabled()
    await expect(menu).to_be_focused()


async def test_an_export_has_the_version_that_is_shown_and_json_says_what_replaces_what(
    context: BrowserContext, gateway: GatewayProcess, tmp_path: Path
) -> None:
    ids = {name: f"01935f6e-0000-7000-8000-{number:012d}" for number, name in enumerate(("asked", "again", "edit"), 1)}
    related = {"asked": ids["asked"], "again": f"{ids['again']}.r-{ids['asked'][-12:]}"}
    related["edit"] = f"{ids['edit']}.e-{ids['asked'][-12:]}"
    turns = [{**past(name), "request_id": related[name], "prompt": f"Q {name}"} for name in related]
    turns[1]["prompt"] = "Q asked"
    page = await enter(context, gateway, "vera")
    talks = [
        {"conversation_id": name, "title": name, "turns": 3, "last_at": 1_700_000_000_000} for name in ("open", "other")
    ]
    await page.route("**/v1/conversations?*", lambda route: route.fulfill(json={"conversations": talks}))
    await page.route("**/v1/conversations/*", lambda route: route.fulfill(json={"turns": turns}))
    await page.reload()
    await page.get_by_role("button", name="open", exact=True).click()
    await expect(page.locator("article")).to_have_count(1)
    await page.get_by_role("button", name="Earlier question").click()
    await expect(page.locator(".answer")).to_have_text("again")
    exported = {}
    for name, kind in (("open", "Markdown"), ("other", "Markdown"), ("other", "JSON")):
        await page.get_by_role("button", name=f"Options of {name}").click()
        async with page.expect_download() as saved:
            await page.get_by_role("button", name=f"Export as {kind}").click()
        await (await saved.value).save_as(tmp_path / "saved")
        exported[name, kind] = (tmp_path / "saved").read_text()
        await page.get_by_role("button", name="Close", exact=True).click()
    asked = "## You (version 1 of 2)\n\nQ asked\n\n## Answer (version 2 of 2)\n\nagain\n"
    assert exported["open", "Markdown"] == f"# open\n\n{asked}"
    assert exported["other", "Markdown"] == "# other\n\n## You (version 2 of 2)\n\nQ edit\n\n## Answer\n\nedit\n"
    told = json.loads(exported["other", "JSON"])["turns"]
    assert [(turn.get("answers_again"), turn.get("edits"), turn["shown"]) for turn in told] == [
        (None, None, False),
        (related["asked"], None, False),
        (None, related["asked"], True),
    ]


async def test_a_search_begins_while_one_types_and_names_the_conversation(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "tess")
    talk = {"conversation_id": "old", "title": "My parcel", "turns": 2, "last_at": 1_700_000_000_000}
    hit = {
        "request_id": "r",
        "conversation_id": "old",
        "role": "user",
        "text": "where is it",
        "created_at": 0,
        "similarity": 1,
    }
    await page.route("**/v1/conversations?*", lambda route: route.fulfill(json={"conversations": [talk]}))
    await page.route("**/v1/search?*", lambda route: route.fulfill(json={"hits": [hit]}))
    await page.reload()
    await expect(page.locator("#conversations")).to_contain_text("My parcel")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("parc")
    await expect(page.locator(".hit small")).to_contain_text("My parcel · You")
    await page.get_by_label("Search the history").fill("")
    await expect(page.locator(".hit")).to_have_count(0)
