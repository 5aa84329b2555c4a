"""A worker without observers (no metrics, request log or lag), for the benchmark of what watching costs."""

from __future__ import annotations

import sys
from pathlib import Path

from faust.cli.faust import cli

from app.delivery.observer import UNOBSERVED
from app.telemetry.telemetry import Telemetry


async def _nothing(_: Telemetry) -> None:
    return None


def main() -> None:
    made = Telemetry.__init__

    def unwatched(self: Telemetry, *given: object) -> None:
        made(self, *given)  # type: ignore[arg-type]
        self.observer = UNOBSERVED

    Telemetry.__init__ = unwatched  # type: ignore[method-assign, assignment]
    Telemetry.start = lambda _: None  # type: ignore[method-assign]
    Telemetry.stop = _nothing  # type: ignore[method-assign]
    sys.argv[0] = str(Path(sys.executable).with_name("faust"))
    cli()


if __name__ == "__main__":
    main()
