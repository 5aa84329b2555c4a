"""The tools that the chat page offers to the model; programs on Kafka run them (app/tools)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from app.wire import Tool


class ToolsFileError(Exception):
    """The file of `PARLEY_GATEWAY_TOOLS` cannot be used; one line with the reason."""


def offered_tools(path: Path | None) -> tuple[Tool, ...]:
    """Read the file: a JSON list, as a request's `tools`. Raises `ToolsFileError`."""
    if path is None:
        return ()
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[Tool, ...])
    except OSError as error:
        raise ToolsFileError(f"PARLEY_GATEWAY_TOOLS={path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ToolsFileError(f"PARLEY_GATEWAY_TOOLS={path}: it must be a JSON list of tools: {error}") from None
