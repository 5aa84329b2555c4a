"""A gateway with `[[pages]]` before a scripted worker, and how clients that know nothing of Parley read them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import requests
from websockets.asyncio.client import ClientConnection

from app.settings import Settings
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.scripted_worker import ScriptedWorker, scripted_worker

POLICY = """
[[pages]]
path = "/generate"
format = "text"
[[pages]]
path = "/chat"
fields = { prompt = "query", user_id = "session", max_tokens = "n" }
format = "data"
[[pages]]
path = "/chat"
method = "POST"
fields = { user_id = "userId" }
format = "raw"
[[pages]]
path = "/events"
[[pages]]
path = "/socket"
method = "WS"
fields = { prompt = "text" }
format = "text"
[[pages]]
path = "/socket/events"
method = "WS"
fields = { prompt = "text" }
"""
WHOLE = [" two", "  spaces\n", "\n lines\r", "\nwindows\r\n", "", "old\rmacs ", "\u2028\x85\x0b ", "\U0001f9d1é", "\n"]
PATIENT = {"app.gateway.asking.page_text.STATUS_S": 60.0, "app.gateway.answers.follow.KEEP_ALIVE_S": 0.1}
HASTY = {**PATIENT, "app.gateway.asking.page_text.STATUS_S": 0.5}
"""The head of a stream leaves, although its status is not known."""


class Place:
    def __init__(self, scripted: ScriptedWorker, gateway: GatewayProcess, policy: Path) -> None:
        self.scripted = scripted
        self.gateway = gateway
        self.policy = policy

    def url(self, path: str) -> str:
        return self.gateway.url + path

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(base_url=self.gateway.url, timeout=60) as http:
            yield http

    def rewrite(self, policy: str) -> None:
        """At once: the gateway may look at any moment."""
        new = self.policy.with_suffix(".new")
        new.write_text(policy)
        new.replace(self.policy)

    def reset(self) -> None:
        """As before the first test."""
        self.scripted.requests.clear()
        self.scripted.goes_on = asyncio.Event()
        self.scripted.scripts = {"everything": WHOLE}


def policy_in(folder: Path) -> Path:
    path = folder / "policy.toml"
    path.write_text(POLICY)
    return path


@asynccontextmanager
async def place_of(settings: Settings) -> AsyncIterator[Place]:
    assert settings.policy is not None
    async with scripted_worker(settings) as scripted:
        log = settings.policy.with_name("gateway.log")
        with GatewayProcess(settings, log, constants=PATIENT) as gateway:
            place = Place(scripted, gateway, settings.policy)
            place.reset()
            yield place
            assert gateway.stop() == 0
            assert "Traceback" not in log.read_text()


class Read(NamedTuple):
    """A reply, its text as its chunks have come, and whether they have come to their end."""

    reply: requests.Response
    text: str
    is_whole: bool

    @property
    def error(self) -> tuple[int, str]:
        return self.reply.status_code, json.loads(self.text)["error"]["code"]


def got(method: str, url: str, **options: Any) -> Read:
    with requests.request(method, url, stream=True, timeout=60, **options) as reply:
        read, is_whole = b"", True
        try:
            for chunk in reply.iter_content(None):
                read += chunk
        except requests.exceptions.ChunkedEncodingError:
            is_whole = False
        return Read(reply, read.decode(), is_whole)


async def read(url: str, method: str = "GET", **options: Any) -> Read:
    """In a thread: the worker is scripted in this one."""
    return await asyncio.to_thread(got, method, url, **options)


async def text(socket: ClientConnection) -> str:
    """The messages up to the empty one."""
    whole = ""
    async with asyncio.timeout(120):
        while part := await socket.recv():
            assert isinstance(part, str)
            whole += part
    return whole
