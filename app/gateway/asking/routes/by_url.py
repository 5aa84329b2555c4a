"""`GET /v1/chat?prompt=`: ask and follow in one call, for what can only send a GET, as an `EventSource`.

A GET that asks is safe from other sites' pages by the rules of every path: without keys only the gateway's own pages
are served, and a page sends no key on its own. `HEAD` is refused, because it would ask too.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.answer_stream import AnswerStreams, is_reconnect
from app.gateway.asking.ask import AskBody
from app.gateway.asking.gateway import gateway_of
from app.gateway.asking.openapi import EVENTS, replies
from app.gateway.asking.reading import read_query
from app.gateway.edge.http import refuse_head

router = APIRouter(prefix="/v1", tags=["requests"])


@router.get("/chat", responses={**replies(EVENTS), 204: {"description": "A reconnect to a stream that is over."}})
async def chat(request: Request) -> Response:
    """Send `prompt` (or `query`) and reply with the stream of the answer's events.

    The other fields of `POST /v1/requests` that are texts or numbers are parameters, too. With a `request_id`, a
    reconnect of an `EventSource` continues the stream; without one it gets 204, because to ask again would be a second
    question.
    """
    refuse_head(request.scope)
    gateway = gateway_of(request)
    caller = await gateway.access.caller(request)
    body, ignored = read_query(request, AskBody, {"query": "prompt"})
    body.check_prompt(ignored)
    identity = caller.identity()
    if is_reconnect(request) and body.request_id is None:
        return Response(status_code=204)
    return await AnswerStreams(gateway, caller, identity).ask(request, body, ignored)
