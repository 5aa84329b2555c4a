"""What may become of a step, for the test of the day itself."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from unittest.mock import patch

from tests.gpu import stand_ins
from tests.gpu.report import Report
from tests.gpu.scale import Scale


def run(report: Report, scale: Scale, kind: str) -> None:
    match kind:
        case "raises":
            raise RuntimeError("broken\nand more")
        case "hangs":
            time.sleep(100)
        case "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "lacks":
            importlib.import_module("nothing_of_that_name")
        case "stands in":
            sys.meta_path.insert(0, Without())
            with patch.object(stand_ins, "find_spec", lambda _: None):
                report.write(stand_ins=stand_ins.put_in())
            importlib.import_module("tests.gpu.steps.broken").run(report, scale)


class Without:
    """Nobody finds the packages that have stand-ins."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.split(".", maxsplit=1)[0] in stand_ins.NAMES:
            raise ModuleNotFoundError(name=name)
