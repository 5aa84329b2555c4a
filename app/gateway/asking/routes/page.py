"""`/`: the chat page, built from `page/`."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.responses import FileResponse

BUILT = Path(__file__).parents[2] / "static"

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page() -> FileResponse:
    # The names of its assets contain their hash, so only this file can be outdated.
    return FileResponse(BUILT / "index.html", headers={"Cache-Control": "no-cache"})


@router.get("/favicon.svg")
async def icon() -> FileResponse:
    return FileResponse(BUILT / "favicon.svg")


def add_page(application: FastAPI) -> None:
    application.include_router(router)
    application.mount("/assets", StaticFiles(directory=BUILT / "assets"), name="assets")
