"""Ask for a reminder in two days, and print it then. This program may end meanwhile; Parley may restart.

pip install httpx; then `python reminder.py ["TEXT" [SECONDS]]`, with PARLEY=http://host:port where it is not
http://127.0.0.1:8080, and KEY. Parley's policy has a table [waits]. For one each day, send the next one when this
one is there: a program that sends the next one is the schedule.
"""

import os
import sys
import time

import httpx

PARLEY = os.environ.get("PARLEY", "http://127.0.0.1:8080")
KEY = os.environ.get("KEY", "dev")
TWO_DAYS_S = 2 * 86_400


def main(text: str = "Remind me to water the plants.", seconds: float = TWO_DAYS_S) -> None:
    not_before = int((time.time() + float(seconds)) * 1000)
    with httpx.Client(base_url=PARLEY, headers={"Authorization": f"Bearer {KEY}"}) as http:
        asked = http.post("/v1/requests", json={"prompt": text, "not_before": not_before}).raise_for_status().json()
        answer = asked | {"status": "queued"}
        while answer["status"] not in {"done", "error"}:
            time.sleep(min(60.0, max(0.5, not_before / 1000 - time.time())))
            answer = http.get(f"/v1/requests/{asked['request_id']}").raise_for_status().json()
    print(answer["text"] or answer["error"]["message"])


main(*sys.argv[1:])
