"""Parley's worker as `faust -A app worker` starts it, with the engine's thread named and perhaps pinned."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from faust.cli.faust import cli

from tests.benchmarks.peers.pinning import name_engine


def main() -> None:
    if os.environ.get("PARLEY_ENGINE") != "paced":  # which has no thread, and needs no torch
        name_engine()
    sys.argv[0] = str(Path(sys.executable).with_name("faust"))
    cli()


if __name__ == "__main__":
    main()
