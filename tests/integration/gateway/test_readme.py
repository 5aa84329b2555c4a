"""What the README and the page of the HTTP API send, as it stands there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.npm import NODE

ROOT = Path(__file__).parents[3]
PAGES = {"sh": ROOT / "README.md", "js": ROOT / "app" / "gateway" / "README.md"}
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed: the JavaScript of the pages was not run")
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def code(language: str, gateway: GatewayProcess) -> str:
    (found,) = [
        one
        for one in re.findall(rf"```{language}\n(.*?)```", PAGES[language].read_text(), re.DOTALL)
        if "127.0.0.1:8080" in one
    ]
    return str(found).replace("http://127.0.0.1:8080", gateway.url)


@needs_node
def test_the_javascript_prints_the_answer(gateway: GatewayProcess, tmp_path: Path) -> None:
    (tmp_path / "ask.mjs").write_text(code("js", gateway))
    ran = subprocess.run([str(NODE), "ask.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=True)
    assert len(ran.stdout.split()) > 3
    assert ran.stderr == ""


@needs_curl
def test_the_curl_streams_as_openai_does(gateway: GatewayProcess) -> None:
    command = code("sh", gateway).replace("curl -N", "curl -sN").replace('"demo"', '"default", "max_tokens": 5')
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=180, check=True)
    assert ran.stdout.startswith("data: {")
    assert ran.stdout.endswith("data: [DONE]\n\n")
