"""A desk that is a program: it approves small refunds, rejects very large ones, and leaves the rest to people.

pip install httpx; then `python refund_desk.py [APPROVED_UP_TO [REJECTED_ABOVE]]`, with PARLEY=http://host:port where it
is not http://127.0.0.1:8080, and KEY of an approver. The policy has `[tools.refund]` with `approve = { by = "desk" }`,
and refunds have an `amount`. Run as many as you like: the first decision counts.
"""

import json
import os
import sys
from urllib.parse import quote

import httpx

PARLEY = os.environ.get("PARLEY", "http://127.0.0.1:8080")
KEY = os.environ.get("KEY", "dev")


def main(approved_up_to: str = "50", rejected_above: str = "1000") -> None:
    query = {"user_id": "refund-desk"}
    with httpx.Client(base_url=PARLEY, headers={"Authorization": f"Bearer {KEY}"}, params=query, timeout=60) as http:
        while True:  # the reply comes when the list is another one
            listed = http.get("/v1/approvals", params={**query, "wait_s": 30}).raise_for_status().json()
            query["version"] = listed["version"]
            for call in listed["approvals"]:
                amount = json.loads(call["arguments"]).get("amount")
                is_for_people = amount is None or float(approved_up_to) < amount <= float(rejected_above)
                if call["name"] != "refund" or is_for_people:
                    continue
                decision = {"decision": "approved"}
                if amount > float(rejected_above):
                    decision = {"decision": "rejected", "reason": f"nobody refunds more than {rejected_above}"}
                path = "/".join(quote(call[part], safe="") for part in ("user_id", "request_id", "wait_id"))
                decided = http.post(f"/v1/approvals/{path}", json=decision).raise_for_status().json()
                print(call["user_id"], amount, decided.get("decision", decided.get("status")), flush=True)


main(*sys.argv[1:])
