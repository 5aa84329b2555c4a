"""Liveness, readiness and metrics of the gateway."""

from __future__ import annotations

from importlib import metadata

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from app.gateway.asking.gateway import gateway_of
from app.gateway.asking.openapi import shape
from app.gateway.callers.jwks import JwksUnavailableError
from app.gateway.edge.errors import json_response

router = APIRouter(tags=["health"])
metrics_router = APIRouter(tags=["health"])

_STATUS = {"content": shape(status="string")}


@router.get("/healthz", responses={200: _STATUS})
async def alive() -> Response:
    return json_response({"status": "ok"})


@router.get("/health", responses={200: _STATUS})
async def health() -> Response:
    """The same as `/healthz`, under the name that vLLM's clients use."""
    return await alive()


@router.get("/version", responses={200: {"content": shape(version="string")}})
async def version() -> Response:
    return json_response({"version": metadata.version("parley")})


@router.get("/readyz", responses={200: _STATUS, 503: {"description": "The gateway is not ready.", **_STATUS}})
async def ready(request: Request) -> Response:
    gateway = gateway_of(request)
    if gateway.live.closing:
        return json_response({"status": "stopping"}, 503)
    if not gateway.directory.is_known:
        return json_response({"status": "joining the group of gateways"}, 503, {"Retry-After": "1"})
    if gateway.links.refused:
        return json_response({"status": "the other gateways do not accept this one: PARLEY_GATEWAY_PEER_SECRET"}, 503)
    if not await gateway.request_producer.reachable():
        return json_response({"status": "Kafka cannot be reached"}, 503, {"Retry-After": "5"})
    try:
        await gateway.access.check()
    except JwksUnavailableError as error:
        return json_response({"status": str(error)}, 503, {"Retry-After": "5"})
    return json_response({"status": "ok"})


@metrics_router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
async def stats(request: Request) -> Response:
    gateway = gateway_of(request)
    gateway.metrics.held.set(gateway.live.held.events)
    gateway.metrics.body_bytes.set(gateway.bodies.held)
    gateway.metrics.connections.set(gateway.gate.open)
    gateway.metrics.refused_connections.set(gateway.gate.refused)
    gateway.metrics.held_bytes.set(gateway.live.held.bytes)
    return Response(generate_latest(gateway.metrics.registry), media_type=CONTENT_TYPE_LATEST)
