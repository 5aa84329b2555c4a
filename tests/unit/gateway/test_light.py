"""A gateway starts fast and stays small: what is heavy is imported where it is used."""

from __future__ import annotations

import subprocess
import sys


def test_the_gateway_is_imported_without_torch_and_faust() -> None:
    code = (
        "import sys, app.gateway.server, app.commands.gateway;"
        "print([name for name in ('torch', 'faust', 'pymilvus', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
