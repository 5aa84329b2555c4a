"""Ask an agent that asks another one, and print who says what.

pip install httpx; then `python researcher.py ["TEXT"]`, with PARLEY=http://host:port where it is not
http://127.0.0.1:8080, and KEY. Parley's policy has the agents of researcher.toml.
"""

import json
import os
import sys
from typing import Any

import httpx

PARLEY = os.environ.get("PARLEY", "http://127.0.0.1:8080")
HEADERS = {"Authorization": f"Bearer {os.environ.get('KEY', 'dev')}", "Accept": "text/event-stream"}


def show(event: dict[str, Any]) -> None:
    details = (event.get("notice") or {}).get("details") or {}
    for call in details.get("calls", []):
        print(f"\n[asks by {call['name']}: {call['arguments']}]")
    for result in details.get("results", []):
        print(f"[is told: {result['content']}]")
    print(event.get("text") or "", end="", flush=True)


def main(text: str = "Where is my order 48213?") -> None:
    asked = {"agent": "support", "prompt": text}
    with httpx.stream("POST", f"{PARLEY}/v1/requests", json=asked, headers=HEADERS, timeout=120) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                show(json.loads(line.removeprefix("data: ")))
    print()


main(*sys.argv[1:])
