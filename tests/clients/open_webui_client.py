"""Open WebUI before Parley, in a real browser: one key of a tenant for all its users, whom headers name."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checks import (
    BASE_URL,
    CONVERSATION_HEADER,
    HOURS,
    MODEL,
    QUESTION,
    SLOW,
    TENANT_KEY,
    USER_HEADER,
    check,
    expect,
    run,
)
from playwright.sync_api import BrowserContext, Page, sync_playwright

WAIT_S = 120.0
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
ADMIN = {"email": "nina@shop.example", "password": "a password of nina", "name": "Nina"}
OTHER = {"email": "omar@shop.example", "password": "a password of omar", "name": "Omar"}
SHOP = "shop"
TOOL = '''
class Tools:
    def order_status(self, order_number: str) -> dict:
        """
        Where an order is.
        :param order_number: the number of the order
        """
        return {"status": "packed", "arrives": "Friday"} if order_number == "48213" else {}
'''


def wait(
    condition: Callable[[], Any], what: str, rest: Callable[[float], None] = time.sleep, most_s: float = WAIT_S
) -> Any:
    deadline = time.monotonic() + most_s
    while not (found := condition()):
        expect(time.monotonic() < deadline, f"{what} has not happened")
        rest(0.1)
    return found


def call(url: str, body: object = None, **headers: str) -> Any:
    """The JSON of a reply; a `body` is posted."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
        return json.loads(reply.read())


def turns(user: str, conversation: str) -> list[dict[str, Any]]:
    """What Parley keeps of this conversation of a user of Open WebUI."""
    headers = {"authorization": f"Bearer {TENANT_KEY}", USER_HEADER: user}
    return call(f"{BASE_URL}/conversations/{conversation}", **headers)["turns"]


@dataclass
class Person:
    """Somebody with a browser of their own who is logged in."""

    page: Page
    id: str
    token: str

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """While it waits, the page's own events are heard."""
        return wait(condition, what, lambda rest_s: self.page.wait_for_timeout(rest_s * 1000))

    def open(self, model: str) -> None:
        self.page.goto(f"{web.url}/?models={model}")
        self.page.wait_for_selector("#chat-input", timeout=WAIT_S * 1000)

    def say(self, text: str) -> None:
        self.page.click("#chat-input")
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def ask(self, model: str, text: str) -> str:
        """The answer, in a chat of its own."""
        self.open(model)
        self.say(text)
        self.wait_idle()
        return self.answer()

    def wait_idle(self) -> None:
        self.wait(lambda: "/c/" in self.page.url, "the chat")
        self.page.wait_for_selector("button[aria-label=Regenerate]", timeout=WAIT_S * 1000)
        self.page.wait_for_selector("button[aria-label=Stop]", state="detached", timeout=WAIT_S * 1000)

    def answer(self) -> str:
        return self.page.locator(".chat-assistant").last.inner_text()

    @property
    def chat(self) -> str:
        return self.page.url.rpartition("/")[2]

    def turns(self, task: str = "") -> list[dict[str, Any]]:
        """What Parley keeps of the chat that is open, or of a task about it."""
        return turns(self.id, self.chat + task)


class OpenWebUI:
    """The server, with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self._log = folder / "open-webui.log"
        connection = {"enable": True, "headers": {CONVERSATION_HEADER: "{{CHAT_ID}}{{TASK}}"}}
        own = {
            "DATA_DIR": str(folder),
            "WEBUI_SECRET_KEY": "a secret of this run alone",
            "WEBUI_ADMIN_EMAIL": ADMIN["email"],
            "WEBUI_ADMIN_PASSWORD": ADMIN["password"],
            "WEBUI_ADMIN_NAME": ADMIN["name"],
            "OPENAI_API_BASE_URL": BASE_URL,
            "OPENAI_API_KEY": TENANT_KEY,
            "OPENAI_API_CONFIGS": json.dumps({"0": connection}),
            "ENABLE_FORWARD_USER_INFO_HEADERS": "true",
            "TASK_MODEL_EXTERNAL": MODEL,
            "BYPASS_MODEL_ACCESS_CONTROL": "true",
            "ENABLE_OLLAMA_API": "false",
            "OFFLINE_MODE": "true",
            "RAG_EMBEDDING_ENGINE": "openai",
        }
        command = [str(Path(sys.executable).with_name("open-webui")), "serve", "--host", "127.0.0.1"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--port", self.url.rpartition(":")[2]],
                env={**os.environ, **own},
                cwd=folder,
                stdout=log,
                stderr=log,
            )

    def wait_started(self) -> None:
        wait(self._has_started, "its start", most_s=600.0)

    def _has_started(self) -> bool:
        expect(self._process.poll() is None, self._log.read_text()[-2000:])
        try:
            return bool(call(f"{self.url}/health"))
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def login(self, context: BrowserContext, who: dict[str, str]) -> Person:
        page = context.new_page()
        page.goto(f"{self.url}/auth")
        page.fill("input[type=email]", who["email"], timeout=WAIT_S * 1000)
        page.fill("input[type=password]", who["password"])
        page.keyboard.press("Enter")
        page.wait_for_selector("#chat-input", timeout=WAIT_S * 1000)
        token = page.evaluate("localStorage.token")
        me = call(f"{self.url}/api/v1/auths/", authorization=f"Bearer {token}")
        seen = {"ui": {"version": call(f"{self.url}/api/config")["version"]}}  # no news in front of the page
        call(f"{self.url}/api/v1/users/user/settings/update", seen, authorization=f"Bearer {token}")
        return Person(page, me["id"], token)


@contextlib.contextmanager
def browsers() -> Iterator[tuple[BrowserContext, BrowserContext]]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    expect(chromium, "no Chromium is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser.new_context(), browser.new_context()
        browser.close()


@check("models of the worker")
def models() -> None:
    listed = call(f"{web.url}/api/models", authorization=f"Bearer {nina.token}")["data"]
    expect({MODEL, SLOW} <= {model["id"] for model in listed}, listed)


@check("chat, with its 36 default tools")
def chat() -> None:
    answer = nina.ask(MODEL, HOURS)
    (turn,) = nina.wait(nina.turns, "a turn")
    expect(turn["prompt"] == HOURS and turn["answer"] == answer, turn)
    expect(turn["usage"]["prompt_tokens"] > 500, turn)


@check("title, tags and follow-up questions are answered beside the chat")
def titles() -> None:
    for task in ("title_generation", "tags_generation", "follow_up_generation"):
        (turn,) = nina.wait(lambda task=task: nina.turns(task), task)
        expect(turn["prompt"].startswith("### Task:") and turn["finish_reason"] == "stop", turn)
    expect(len(nina.turns()) == 1, nina.turns())
    expect(HOURS in nina.wait(lambda: nina.page.title().partition(" / ")[0], "a title"), nina.page.title())


@check("regenerate")
def regenerate() -> None:
    nina.page.click("button[aria-label=Regenerate]")
    with contextlib.suppress(Exception):
        nina.page.get_by_text("Try Again", exact=True).click(timeout=3000)
    first, second = nina.wait(lambda: (found := nina.turns()) and len(found) == 2 and found, "a second turn")
    expect(first["prompt"] == second["prompt"] and first["request_id"] != second["request_id"], second)
    nina.wait_idle()
    expect(
        "2/2"
        in nina.page.locator(".chat-assistant")
        .last.locator("xpath=ancestor::*[contains(@id,'message-')]")
        .first.inner_text(),
        nina.page.locator("body").inner_text(),
    )


@check("stop ends the answer at the worker")
def stop() -> None:
    nina.open(SLOW)
    nina.say("tell me everything")
    nina.wait(lambda: "/c/" in nina.page.url and len(nina.answer().split()) > 5, "some words")
    nina.page.click("button[aria-label=Stop]")
    (turn,) = nina.wait(nina.turns, "the end of the answer")
    expect(turn["finish_reason"] == "cancelled", turn)


@check("a tool of its own is called, and the answer uses its result")
def tool() -> None:
    authorization = f"Bearer {nina.token}"
    new_tool = {"id": "shop_tools", "name": "Shop", "content": TOOL, "meta": {"description": "Orders."}}
    call(f"{web.url}/api/v1/tools/create", new_tool, authorization=authorization)
    meta = {"toolIds": ["shop_tools"], "capabilities": {"builtin_tools": False}}
    model = {"id": SHOP, "base_model_id": MODEL, "name": "Shop", "meta": meta, "params": {"temperature": 0}}
    call(f"{web.url}/api/v1/models/create", model, authorization=authorization)
    answer = nina.ask(SHOP, QUESTION)
    called, told = nina.wait(lambda: (found := nina.turns()) and len(found) == 2 and found, "two turns")
    expect(called["tool_calls"][0]["name"] == "order_status", called)
    expect("packed" in answer and "Friday" in answer, answer)
    expect(told["answer"] in answer, told)


@check("two users do not see each other")
def two_users() -> None:
    call(f"{web.url}/api/v1/auths/add", {**OTHER, "role": "user"}, authorization=f"Bearer {nina.token}")
    omar = web.login(second, OTHER)
    omar.ask(MODEL, "I am Omar")
    (turn,) = omar.wait(omar.turns, "a turn")
    expect(turn["prompt"] == "I am Omar", turn)
    expect(turns(nina.id, omar.chat) == [], "Nina has Omar's chat")
    expect(turns(omar.id, nina.chat) == [], "Omar has Nina's chat")
    omar.page.goto(web.url)
    omar.page.wait_for_selector("#chat-input", timeout=WAIT_S * 1000)
    expect(HOURS not in omar.page.locator("body").inner_text(), "Omar's page shows Nina's chat")


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, browsers() as (first, second):
    web = OpenWebUI(Path(name))
    try:
        web.wait_started()
        nina = web.login(first, ADMIN)
        run()
    finally:
        web.stop()
