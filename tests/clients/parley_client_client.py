"""`parley-client` from its folder: nothing of Parley's own environment is there."""

import importlib.util
import sys
import time

from checks import HOURS, check, expect, run
from parley_client import AsyncParley, Parley

GATEWAY = sys.argv[1]
INDEXED_S = 120.0


@check("installed without PyTorch and without Parley")
def light() -> None:
    found = [name for name in ("torch", "transformers", "faust", "pymilvus", "app") if importlib.util.find_spec(name)]
    expect(not found, found)


@check("ask and result")
def ask() -> None:
    with Parley(GATEWAY, user="kim") as parley:
        answer = parley.ask(HOURS, temperature=0).result()
        expect("8 am" in answer.text and answer.end["finish_reason"] == "stop", answer)


@check("ask, follow and cancel with an event loop")
async def ask_async() -> None:
    async with AsyncParley(GATEWAY, user="kim") as parley:
        asked = await parley.ask(HOURS)
        pieces = [update.text async for update in asked]
        again = await parley.follow(asked.request_id).result()
        expect(len(pieces) > 3 and "".join(pieces) == again.text, pieces)
        await parley.cancel(asked.request_id)  # it is over: no error


@check("search")
def search() -> None:
    with Parley(GATEWAY, user="kim", patience_s=INDEXED_S) as parley:
        parley.ask("I want to give back a blue jacket.").result()
        deadline = time.monotonic() + INDEXED_S
        while "jacket" not in str(hits := parley.search("returning clothes")):
            expect(time.monotonic() < deadline, hits)
            time.sleep(0.1)


run()
