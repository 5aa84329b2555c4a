"""What the chat page says: errors in words, figures that are right, Markdown that is read aloud, on a phone, too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Route, expect

from app.settings import Settings
from tests.browser.test_page import LONG_MS, enter, over, past, say, stored, words
from tests.faults.proxy import Proxy
from tests.integration.gateway.gateway_process import GatewayProcess

pytestmark = pytest.mark.usefixtures("worker")
WIDE = """\
| order | what is in the parcel and how it was packed | remark of the person who has packed it |
|:-:|---|-:|
| 4711 | Supercalifragilisticexpialidocious_and_more_of_that_kind_without_a_blank | none |

```python
def a_function_with_a_long_name(argument_number_one, argument_number_two, argument_number_three):
```

- [x] packed
- [ ] **not** sent

A claim[^1], a mark without a note[^2] and ~~a mistake~~.

[^1]: Its source.
"""


@pytest.mark.parametrize("width", [320, 375, 1280])
async def test_nothing_is_wider_than_the_page(context: BrowserContext, gateway: GatewayProcess, width: int) -> None:
    page = await context.new_page()
    call = {"id": "1", "name": "orderStatus", "arguments": json.dumps({"order": "4711" * 30})}
    turns = [past(WIDE), {**past("called"), "tool_calls": [call]}]
    await page.route("**/v1/conversations/*", lambda route: route.fulfill(json={"turns": turns}))
    await page.set_viewport_size({"width": width, "height": 700})
    await page.goto(gateway.url)
    await expect(page.locator("article")).to_have_count(2)
    assert await page.evaluate("document.documentElement.scrollWidth") == width
    assert await page.locator("#turns").evaluate("turns => turns.scrollWidth - turns.clientWidth") == 0
    box = await page.get_by_role("button", name="Send", exact=True).bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= width


async def test_markdown_has_tasks_notes_and_columns(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await context.new_page()
    await page.route("**/v1/conversations/*", lambda route: route.fulfill(json={"turns": [past(WIDE)]}))
    await page.goto(gateway.url)
    answer = page.locator(".answer")
    await expect(answer.get_by_role("checkbox", name="packed")).to_be_checked()
    await expect(answer.get_by_role("checkbox", name="not sent")).not_to_be_checked()
    aligned = await answer.locator("td").evaluate_all("cells => cells.map(cell => cell.style.textAlign)")
    assert aligned == ["center", "", "right"]
    await expect(answer.locator("del")).to_have_text("a mistake")
    await expect(answer).to_contain_text("a mark without a note[^2]")
    await expect(answer.locator(".notes li")).to_contain_text("Its source.")
    note = await answer.get_by_role("link", name="Note 1", exact=True).get_attribute("href")
    assert note == "#" + str(await answer.locator(".notes li").get_attribute("id"))


def events_of(*events: Mapping[str, object]) -> str:
    return "".join(f"data: {json.dumps({'request_id': 'r', 'user_id': 'u', **event})}\n\n" for event in events)


async def test_a_question_that_is_typed_before_the_turns_are_there_and_fails_is_shown_once_behind_them(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await context.new_page()
    typed = asyncio.Event()

    async def turns(route: Route) -> None:
        await typed.wait()
        await route.fulfill(json={"turns": [past("an old answer")]})

    failed = events_of({"type": "error", "index": 0, "epoch": 1, "error": {"code": "engine_error", "message": ""}})
    await page.route("**/v1/conversations/*", turns)
    await page.route("**/events?*", lambda route: route.fulfill(content_type="text/event-stream", body=failed))
    await page.route("**/v1/requests?*", lambda route: route.fulfill(status=202, json={"request_id": "r"}))
    await page.goto(gateway.url)
    await page.get_by_label("User", exact=True).fill("erna")
    await page.get_by_label("User", exact=True).press("Enter")
    await say(page, "what will fail")
    await expect(page.get_by_label("Message")).to_have_value("")
    typed.set()
    await expect(page.locator(".prompt")).to_have_text(["p", "what will fail"])
    await over(page)
    await expect(page.locator("article")).to_have_count(2)


async def test_an_error_is_told_in_words_without_what_servers_say(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "erna")
    cause = "the servers of writer failed: Error code: 500 - boom"
    notice = {"type": "notice", "notice": {"code": "fallback", "message": f"{cause}; small answers"}}
    error = {"type": "error", "index": 0, "epoch": 1, "error": {"code": "engine_error", "message": cause}}
    streams = [events_of(notice, error), events_of(error)]
    shown: list[str] = []

    async def answer(route: Route) -> None:
        await route.fulfill(content_type="text/event-stream", body=streams.pop())

    await page.route("**/events?*", answer)
    await page.route("**/v1/requests?*", lambda route: route.fulfill(status=202, json={"request_id": "r"}))
    for number in (1, 2):
        await say(page, "what will fail")
        await expect(page.locator("article")).to_have_count(number)
        await over(page)
        shown.append(await page.locator("body").inner_text())
    await expect(page.locator(".note").last).to_have_text("The model failed at this answer. Try again.")
    # The history has no turn of what has failed: the question is kept here, where it was asked.
    await page.unroute("**/events?*")
    await page.unroute("**/v1/requests?*")
    await say(page, "what will not")
    await words(page, 2)
    await page.keyboard.press("Escape")
    await over(page)
    await stored(gateway, "erna", 1)
    await page.reload()
    await expect(page.locator(".prompt")).to_have_text(["what will fail", "what will fail", "what will not"])
    await expect(page.locator(".note").first).to_have_text("The model failed at this answer. Try again.")
    for text in (*shown, await page.locator("#heard").inner_text()):
        assert not any(word in text for word in ("boom", "500", "engine_error", "writer"))


@pytest.mark.parametrize(
    ("code", "status", "words_shown"),
    [
        ("rate_limited", 429, "You have reached your limit. Try again in 7 s."),
        ("prompt_too_long", 400, "This is too long for the model. Make it shorter, or begin a new conversation."),
        ("of_a_later_version", 500, "Something went wrong. Try again."),
    ],
)
async def test_a_refusal_is_told_in_words_and_the_message_is_kept(
    browser: Browser, gateway: GatewayProcess, code: str, status: int, words_shown: str
) -> None:
    page = await browser.new_page()
    await page.goto(gateway.url)
    body = {"error": {"code": code, "message": "tokens: 10 of 5 at partition 3"}}
    refuse = lambda route: route.fulfill(status=status, headers={"Retry-After": "7"}, json=body)  # noqa: E731
    await page.route("**/v1/requests?*", refuse)
    await say(page, "too much")
    await expect(page.locator("#banner")).to_have_text(words_shown)
    await expect(page.get_by_label("Message")).to_have_value("too much")
    await page.close()


async def test_that_the_gateway_is_away_is_told_until_it_is_back(
    browser: Browser, settings: Settings, tmp_path: Path
) -> None:
    with GatewayProcess(settings, tmp_path / "gateway.log") as gateway:
        page = await browser.new_page()
        await page.goto(gateway.url)
        await expect(page.get_by_label("Message")).to_be_focused()
        await asyncio.to_thread(gateway.stop)
        await say(page, "into the void")
        banner = page.locator("#banner")
        await expect(banner).to_have_text("The server cannot be reached; trying again.")
        async with page.expect_event("requestfailed"):  # it tries by itself
            pass
        await expect(banner).to_be_visible()
        await asyncio.to_thread(gateway.start)
        await expect(banner).not_to_be_visible(timeout=LONG_MS)
        await expect(page.get_by_label("Message")).to_have_value("into the void")
        await page.get_by_label("Message").press("Enter")
        await words(page, 2)
        await page.close()


async def test_a_gateway_that_hangs_is_left_and_the_answer_goes_on(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    async with Proxy(gateway.settings.gateway_port) as proxy:
        page = await context.new_page()
        await page.clock.install()
        await page.goto(f"http://127.0.0.1:{proxy.port}")
        await say(page, "tell me a long story")
        await words(page, 5)
        proxy.silent, connections = True, proxy.connections
        while proxy.connections == connections:
            await page.clock.fast_forward(20_000)
            await asyncio.sleep(0.1)
        proxy.silent = False
        answer = page.locator(".answer")
        read = len((await answer.inner_text()).split())
        while len((await answer.inner_text()).split()) < read + 5:
            await page.clock.fast_forward(20_000)
            await asyncio.sleep(0.5)
        await page.close()


async def test_the_figures_are_those_of_the_answer_after_a_reload_too(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await enter(context, gateway, "fred")
    await say(page, "tell me a long story")
    await words(page, 12)
    await expect(page.locator("#panel")).to_contain_text("First token")
    await page.reload()  # what was written arrives at once, and says nothing about its speed
    await words(page, 20)
    await page.keyboard.press("Escape")
    await over(page)
    await stored(gateway, "fred", 1)
    figures = page.locator("#panel")
    shown = [await figures.inner_text()]
    await page.reload()
    await expect(figures).to_contain_text("Model")
    shown.append(await figures.inner_text())
    for text in shown:
        known = dict(zip(text.split("\n")[::2], text.split("\n")[1::2], strict=True))
        # Without a time of the first token where the log's clock is no later than the request's.
        assert known.keys() | {"First token"} == {"First token", "Tokens/s", "Tokens", "Model"}
        # The engine is paced: 25 tokens a second, or fewer on a busy machine.
        assert float(known["Tokens/s"]) < 30
    live, later = (text.split("\n")[text.split("\n").index("Tokens") + 1] for text in shown)
    assert live == later


async def test_an_answer_is_read_aloud_without_its_marks(context: BrowserContext, gateway: GatewayProcess) -> None:
    page = await enter(context, gateway, "lena")
    text = "## Report\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- **one**\n- `two`\n\n```py\nx = 1\n```"
    events = [
        {"type": "token", "index": 0, "epoch": 1, "tokens": [1], "text": text},
        {"type": "done", "index": 1, "epoch": 1, "finish_reason": "stop", "usage": {"completion_tokens": 1}},
    ]
    stream = {"content_type": "text/event-stream", "body": events_of(*events)}
    await page.route("**/events?*", lambda route: route.fulfill(**stream))
    await say(page, "report")
    heard = page.locator("#heard")
    await expect(heard).to_contain_text("Answer:")
    assert await heard.text_content() == "Answer: Report\na\nb\n1\n2\none\ntwo\nx = 1"


async def test_stop_words_and_parts_of_words_are_not_marked(context: BrowserContext, gateway: GatewayProcess) -> None:
    text = "I have noted that: the parcel, no parcels, has not come. Come!"
    hit = {"request_id": "r", "role": "user", "text": text, "created_at": 0, "similarity": 0.9, "conversation_id": "c"}
    page = await enter(context, gateway, "stine")
    await page.route("**/v1/search?*", lambda route: route.fulfill(json={"hits": [hit]}))
    await page.keyboard.press("Control+k")
    await page.get_by_label("Search the history").fill("a parcel that has not come")
    await page.keyboard.press("Enter")
    await expect(page.locator("#hits mark")).to_have_text(["parcel", "come", "Come"])


FORMULAS = r"""Energy is $E = mc^2$, a ticket costs $5, or 10$ in cash, US$ 6 and \$7; `$x$` is code,
$\frac{1}{$ is not.

$$
\int_0^1 x^2 \, dx = \frac{1}{3}
$$

1. A root \(\sqrt{2}\):
   $$A = \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$$

\[ y = x \]

| a | b |
|---|---|
| one<br>two | $\alpha$ |

![a chart](http://charts.example/1.png) and $\def\a{\a\a}\a$ end, and $$ is open: \[ x
"""


async def test_formulas_are_shown_as_mathematics_and_money_is_not(
    context: BrowserContext, gateway: GatewayProcess
) -> None:
    page = await context.new_page()
    await page.route("**/v1/conversations/*", lambda route: route.fulfill(json={"turns": [past(FORMULAS)]}))
    await page.goto(gateway.url)
    answer = page.locator(".answer")
    await expect(answer.locator("math")).to_have_count(6)
    await expect(answer.locator(".block math")).to_have_count(3)
    await expect(answer.locator("math mfrac")).to_have_count(1)
    await expect(answer.locator("math mtable")).to_have_count(1)
    await expect(answer).to_contain_text("a ticket costs $5, or 10$ in cash, US$ 6 and $7; $x$ is code")
    await expect(answer).to_contain_text("$\\frac{1}{$ is not.")
    await expect(answer).to_contain_text("$\\def\\a{\\a\\a}\\a$ end, and $$ is open: \\[ x")
    await expect(answer.locator("td br")).to_have_count(1)
    await expect(answer.locator("a")).to_have_attribute("href", "http://charts.example/1.png")
    await expect(answer.locator("img")).to_have_count(0)


async def test_a_phone_has_room_for_fingers_and_one_row_above(browser: Browser, gateway: GatewayProcess) -> None:
    context = await browser.new_context(viewport={"width": 375, "height": 740}, has_touch=True, is_mobile=True)
    page = await context.new_page()
    models = [{"id": "default"}, {"id": "demo"}, {"id": "slow"}]
    await page.route("**/v1/models*", lambda route: route.fulfill(json={"data": models}))
    await page.route("**/v1/conversations/*", lambda route: route.fulfill(json={"turns": [past("short")]}))
    await page.goto(gateway.url)
    await expect(page.get_by_label("Model", exact=True).locator("option")).to_have_text(
        ["Default model", "demo", "slow"]
    )
    await page.get_by_role("button", name="Conversations", exact=True).click()
    fields = "[...document.querySelectorAll('input, select, textarea')].filter(one => one.offsetParent)"
    sizes = await page.evaluate(f"{fields}.map(one => [parseFloat(getComputedStyle(one).fontSize), one.offsetHeight])")
    assert len(sizes) == 3
    assert min(letters for letters, _ in sizes) >= 16
    assert min(height for _, height in sizes) >= 40
    assert await page.locator("kbd").evaluate_all("keys => keys.some(key => key.offsetParent)") is False
    assert await page.locator("aside").evaluate("aside => aside.offsetHeight") < 60
    assert await page.evaluate("document.documentElement.scrollHeight") == 740
    await context.close()
