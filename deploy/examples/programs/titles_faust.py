"""A Faust program beside Parley: it asks for a title of each conversation that has a second turn.

It may be killed at any moment. Turns may come again then, and a request may be sent again: it has the same id, so it
has one answer.
"""

import os

import faust
from read_committed import App

TITLES = "titles"


class Turn(faust.Record):
    """What is used of a record of `turns`; the other fields are left out."""

    request_id: str
    user_id: str
    conversation_id: str
    prompt: str


class Request(faust.Record, include_metadata=False):
    request_id: str
    user_id: str
    conversation_id: str
    prompt: str


app = App(
    "titles-faust",
    broker=f"kafka://{os.environ['KAFKA']}",
    topic_partitions=int(os.environ["PARTITIONS"]),
    topic_disable_leader=True,
    consumer_auto_offset_reset="earliest",
    broker_session_timeout=10,
)
turns = app.topic(os.environ.get("TURNS", "turns"), key_type=str, value_type=Turn)
requests = app.topic(os.environ.get("REQUESTS", "requests"), key_type=str, value_type=Request)
first = app.Table("first", key_type=str, value_type=str)


@app.agent(turns)
async def ask_for_titles(stream: faust.StreamT[Turn]) -> None:
    async for turn in stream:
        if turn.conversation_id == TITLES:
            continue
        conversation = f"{turn.user_id}/{turn.conversation_id}"
        before = first.get(conversation)
        if before is None:
            first[conversation] = turn.request_id
        elif before not in {turn.request_id, TITLES}:
            prompt = f"Name this conversation in five words: {turn.prompt}"
            request = Request(f"title-{turn.conversation_id}", turn.user_id, TITLES, prompt)
            await (await requests.send(key=turn.user_id, value=request))  # in Kafka before the turn is committed
            first[conversation] = TITLES
