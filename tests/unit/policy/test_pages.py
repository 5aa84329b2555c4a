"""The table `pages`: all its mistakes, and that no page can have a path of the gateway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.routing import Mount

from app.gateway.application import create_application
from app.gateway.asking.gateway import Gateway
from app.gateway.callers.access import Access
from app.policy.check import checked
from app.policy.pages import PageRules
from app.settings import Settings

SETTINGS = Settings(_env_file=None)


def mistakes(tmp_path: Path, *pages: str) -> list[str]:
    path = tmp_path / "policy.toml"
    path.write_text("".join(f"[[pages]]\n{page}\n" for page in pages))
    return checked(path, SETTINGS)[1]


def test_pages_of_one_path_with_several_methods_are_fine(tmp_path: Path) -> None:
    chat = [f'path = "/chat"\nmethod = "{method}"\nfields = {{ prompt = "query" }}' for method in ("GET", "POST", "WS")]
    assert mistakes(tmp_path, *chat, 'path = "/chat/v2.0/~x_y-z"\nfields = { prompt = "q", max_tokens = "n" }') == []


@pytest.mark.parametrize(
    ("page", "mistake"),
    [
        ('path = "/chat"\nmethod = "PUT"', 'pages[0].method: is "PUT"; valid are "GET", "POST", "WS"'),
        ('path = "/chat"\nformat = "json"', 'pages[0].format: is "json"; valid are "text", "data", "raw", "events"'),
        ('path = "/chat"\nfields = { promt = "q" }', "pages[0]: fields: 'promt' is not known; did you mean 'prompt'?"),
        ('path = "/chat"\nfields = { tenant = "t" }', "pages[0]: fields: 'tenant' is not known"),
        ('path = "/chat"\nfields = { messages = "m" }', "pages[0]: fields: messages is neither a text nor a number"),
        ('path = "/chat"\nfields = { prompt = "" }', "pages[0]: fields: the name of prompt is empty"),
        (
            'path = "/chat"\nfields = { prompt = "q", model = "q" }',
            "pages[0]: fields: 'q' is the name of prompt and of another field",
        ),
        (
            'path = "/chat"\nfields = { prompt = "model" }',
            "pages[0]: fields: 'model' is the name of prompt and of another field",
        ),
        (
            'path = "/chat"\nfields = { user_id = "u", prompt = "user_id" }',
            "pages[0]: fields: 'user_id' is the name of prompt and of another field",
        ),
        ('method = "GET"', "pages[0].path: is missing"),
    ],
)
def test_each_mistake_is_told_with_what_may_stand_there(tmp_path: Path, page: str, mistake: str) -> None:
    told = mistakes(tmp_path, page)
    assert told
    assert any(one.startswith(mistake) for one in told), told


@pytest.mark.parametrize(
    "path",
    ["", "chat", "//chat", "/chat/", "/a//b", "/../etc", "/a/..", "/./a", "/{id}", "/chat*", "/%63hat", "/a?b", "/a#b",
     "/a b", "/caf\u00e9", "/a\\\\b", "/a\\n", "/" + 200 * "a"],
)  # fmt: skip
def test_a_path_is_plain(tmp_path: Path, path: str) -> None:
    (told,) = mistakes(tmp_path, f'path = "{path}"')
    assert told.startswith("pages[0]: path: must be as /chat or /chat/now")


def test_one_path_has_one_page_of_a_method(tmp_path: Path) -> None:
    told = mistakes(tmp_path, 'path = "/chat"', 'path = "/chat"\nmethod = "POST"', 'path = "/chat"\nformat = "raw"')
    assert told == ["pages[2]: another page is GET '/chat'"]


def leaves(routes: Iterable[Any]) -> Iterator[Any]:
    for route in routes:
        yield from leaves(route.original_router.routes) if hasattr(route, "original_router") else [route]


async def test_no_page_has_a_path_of_the_gateway(tmp_path: Path) -> None:
    gateway = Gateway(Settings(_env_file=None, data_dir=tmp_path), Access(SETTINGS), 1)
    routes = [*leaves(create_application(gateway).routes)]
    served = {str(route.path) for route in routes}
    assert {"/", "/v1/chat", "/v1/ws", "/v1/requests/{request_id}/events", "/metrics", "/openapi.json"} <= served
    for path in (*served, *(f"{route.path}/index.js" for route in routes if isinstance(route, Mount)), "/v1/more"):
        for method in ("GET", "POST", "WS"):
            told = [one.why for one in PageRules(path=path, method=cast("Any", method)).mistakes()]
            assert told == [f"path: {path!r} is a path of the gateway's own"], told
