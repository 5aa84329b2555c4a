"""What a shell executes of a page: its `sh` blocks, in order."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "operations"
SHELL = FOLDER / "README.md"
"""Its blocks are executed before those of each page."""
READY = "@@ ready"
ENDED = "@@ ended with "
"""Its last line, with its exit code."""
DONE = f"{ENDED}0"
GO = f'echo "{READY}"; until [ -e go ]; do sleep 0.1; done'
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[str]:
    return _BLOCK.findall(page.read_text())


def pages() -> list[str]:
    return sorted(page.stem for page in FOLDER.glob("*.md") if page != SHELL)


def script(name: str) -> str:
    """The program of a page. Once the parts are ready, it waits until the file `go` exists."""
    return "\n".join([
        "set -euo pipefail",
        f"trap 'code=$?; echo \"last: $BASH_COMMAND\"; echo \"{ENDED}$code\"' EXIT",
        *blocks(SHELL),
        GO,
        *(_told(number, block) for number, block in enumerate(blocks(FOLDER / f"{name}.md"), start=1)),
    ])  # fmt: skip


def _told(number: int, block: str) -> str:
    return f'echo "@@ block {number}"\n{block}'
