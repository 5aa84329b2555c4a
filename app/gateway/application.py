"""The ASGI application of one gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from app.gateway.asking.gateway import Gateway, gateway_of
from app.gateway.asking.openapi import document
from app.gateway.asking.parameters import IGNORED_HEADER
from app.gateway.asking.routes import admin, approvals, by_url, health, requests, search, socket, users, waits
from app.gateway.asking.routes.pages import with_pages
from app.gateway.edge import bounds
from app.gateway.edge.access_log import AccessLog
from app.gateway.edge.connections import ByAddress
from app.gateway.edge.errors import ApiError
from app.gateway.edge.http import Counting, Failures, Paths, RequestIds, Utf8Urls
from app.gateway.edge.origins import ForeignPages, LoopbackOnly
from app.gateway.edge.tracing import HttpTraces
from app.gateway.openai.routes import completions, conversations, embeddings, models, responses
from app.wire.error import ErrorCode

_READABLE = ("X-Request-Id", "X-Parley-Request-Id", IGNORED_HEADER, "Retry-After", "Location")
"""Headers of replies that a page of an allowed origin may read."""
BUILT = Path(__file__).parent / "static"
"""The pages for chats and for desks, built from `page`."""
_CODES = {404: ErrorCode.NOT_FOUND}


def create_application(gateway: Gateway) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await gateway.stop()

    version = metadata.version("parley")
    application = FastAPI(
        title="Parley", version=version, docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan
    )
    application.state.gateway = gateway
    # The middleware added last runs first. The inner one's replies are counted and named like any other.
    application.add_middleware(Failures)
    application.add_middleware(HttpTraces, tracing=gateway.tracing)
    application.add_middleware(Paths)
    application.add_middleware(Utf8Urls)
    if gateway.access.development:
        application.add_middleware(LoopbackOnly, origins=gateway.settings.origins)
    if gateway.settings.gateway_trusted_proxies:
        application.add_middleware(ByAddress, most=bounds.CONNECTIONS_OF_ADDRESS)
    application.add_middleware(Counting, metrics=gateway.metrics)
    application.add_middleware(RequestIds)
    if gateway.settings.origins:
        application.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(gateway.settings.origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=_READABLE,
        )
    refuses_all = gateway.access.development
    application.add_middleware(ForeignPages, origins=gateway.settings.origins, refuses_all=refuses_all)
    if gateway.settings.gateway_access_log:
        application.add_middleware(AccessLog)
    application.add_middleware(Failures)
    application.add_exception_handler(ApiError, _refused)
    application.add_exception_handler(HTTPException, _no_route)
    application.add_exception_handler(RequestValidationError, _wrong_parameter)
    openai = (completions, responses, embeddings, models, conversations)
    for one in (requests, waits, approvals, by_url, socket, *openai, search, users, admin, health):
        application.include_router(one.router)
    if gateway.access.development:
        application.include_router(health.metrics_router)
    application.router.default = with_pages(gateway.pages, _no_socket(application.router.default))
    application.include_router(page_router)
    application.mount("/assets", StaticFiles(directory=BUILT / "assets"), name="assets")
    document(application, lambda: gateway.pages.described)
    return application


page_router = APIRouter(include_in_schema=False)


@page_router.get("/")
async def page() -> FileResponse:
    # The names of its assets contain their hash, so only this file can be outdated.
    return FileResponse(BUILT / "index.html", headers={"Cache-Control": "no-cache"})


@page_router.get("/approvals")
async def approvals_page() -> FileResponse:
    return FileResponse(BUILT / "approvals.html", headers={"Cache-Control": "no-cache"})


@page_router.get("/favicon.svg")
async def icon() -> FileResponse:
    return FileResponse(BUILT / "favicon.svg")


def create_operations(gateway: Gateway) -> FastAPI:
    """Health and metrics, for a port that callers cannot reach."""
    application = FastAPI(title="Parley's operations", docs_url=None, redoc_url=None, openapi_url=None)
    application.state.gateway = gateway
    application.add_middleware(Failures)
    application.add_exception_handler(HTTPException, _no_route)
    application.include_router(health.router)
    application.include_router(health.metrics_router)
    return application


def _no_socket(otherwise: ASGIApp) -> ASGIApp:
    """A WebSocket to an unknown path gets 404; Starlette would answer 403."""

    async def default(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            error = ApiError(ErrorCode.NOT_FOUND, "Not Found")
            await WebSocket(scope, receive, send).send_denial_response(error.response())
        else:
            await otherwise(scope, receive, send)

    return default


async def _refused(request: Request, error: Any) -> Response:
    gateway = gateway_of(request)
    gateway.audit_trail.denied(request, error)
    if getattr(request.state, "body_is_read", False):  # and refused for what it asks: that costs as much
        gateway.limits.count_refused(request.state.caller.holder)
    response: Response = error.response()
    if (done := getattr(request.state, "done", None)) is not None:  # there is no room for the reply to what was done
        response.headers["X-Should-Retry"] = "false"  # OpenAI's clients read it
        if done:
            response.headers["X-Request-Id"] = done
    return response


async def _no_route(_: Request, error: Any) -> Response:
    code = _CODES.get(error.status_code, ErrorCode.INVALID_REQUEST)
    return ApiError(code, str(error.detail), status=error.status_code).response()


async def _wrong_parameter(_: Request, error: Any) -> Response:
    first = error.errors()[0]
    param = str(first["loc"][-1])
    return ApiError(ErrorCode.INVALID_REQUEST, f"{param}: {first['msg']}", param=param).response()
