"""The paths of the policy (`[[pages]]`).

They are looked up only where no route of the gateway matches, so a policy without pages costs nothing, and a page that
appears or goes needs no other routes.
"""

from __future__ import annotations

from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from app.gateway.asking.answer_stream import AnswerStreams, is_reconnect
from app.gateway.asking.gateway import gateway_of
from app.gateway.asking.page_channel import channel_of
from app.gateway.asking.page_text import TextStreams
from app.gateway.asking.pages import Pages, PolicyPage
from app.gateway.asking.reading import read_parameters, read_query
from app.gateway.asking.routes.socket import serve_socket
from app.gateway.edge.errors import ApiError, renamed
from app.gateway.edge.http import refuse_head


def with_pages(pages: Pages, otherwise: ASGIApp) -> ASGIApp:
    """What serves the paths that no route has."""

    async def default(scope: Scope, receive: Receive, send: Send) -> None:
        by_method = pages.at(scope["path"])
        if scope["type"] == "websocket" and "WS" in by_method:
            page = scope["route"] = by_method["WS"]
            await serve_socket(WebSocket(scope, receive, send), partial(channel_of, page))
        elif scope["type"] == "http" and by_method.keys() - {"WS"}:
            if scope["method"] not in by_method:
                raise HTTPException(405)
            page = scope["route"] = by_method[scope["method"]]
            reply = await _reply(Request(scope, receive, send), page)
            await reply(scope, receive, send)
        else:
            await otherwise(scope, receive, send)

    return default


async def _reply(request: Request, page: PolicyPage) -> Response:
    """Raises `ApiError`, in the page's words."""
    refuse_head(request.scope)
    try:
        return await _answer(request, page)
    except ApiError as error:
        raise renamed(error, page.rules.fields) from None


async def _answer(request: Request, page: PolicyPage) -> Response:
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    if page.rules.method == "POST":
        body, ignored = await read_parameters(request, page.body)
    else:
        body, ignored = read_query(request, page.body, {})
    body.check_prompt(ignored)
    identity = caller.identity(body.user_id)
    if page.shows_text:
        return await TextStreams(gateway, caller, identity, page.rules.format).ask(request, body, ignored)
    if page.rules.method == "GET" and is_reconnect(request) and body.request_id is None:
        return Response(status_code=204)
    return await AnswerStreams(gateway, caller, identity).ask(request, body, ignored)
