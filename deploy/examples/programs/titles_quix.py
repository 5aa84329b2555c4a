"""A Quix Streams program beside Parley: it asks for a title of each conversation that has a second turn.

pip install quixstreams msgspec
KAFKA=127.0.0.1:9092 python titles_quix.py
"""

import os

import msgspec
from quixstreams import Application, State

TITLES = "titles"


class Turn(msgspec.Struct, frozen=True):
    """What is used of a record of `turns`; the other fields are left out."""

    request_id: str
    user_id: str
    conversation_id: str
    prompt: str


class Request(msgspec.Struct, frozen=True):
    request_id: str
    user_id: str
    conversation_id: str
    prompt: str


def title_of(turn: Turn, state: State) -> Request | None:
    """Once for a conversation. The state is the user's: turns have their user as the key."""
    if turn.conversation_id == TITLES:
        return None
    before = state.get(turn.conversation_id)
    if before is None:
        state.set(turn.conversation_id, turn.request_id)
    elif before not in {turn.request_id, TITLES}:
        state.set(turn.conversation_id, TITLES)
        prompt = f"Name this conversation in five words: {turn.prompt}"
        return Request(f"title-{turn.conversation_id}", turn.user_id, TITLES, prompt)
    return None


def main() -> None:
    app = Application(
        broker_address=os.environ["KAFKA"],
        consumer_group="titles-quix",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        consumer_extra_config={"session.timeout.ms": 10_000},
    )
    turns = app.topic(os.environ.get("TURNS", "turns"), key_deserializer="str", value_deserializer="bytes")
    requests = app.topic(os.environ.get("REQUESTS", "requests"), key_serializer="str", value_serializer="bytes")
    frame = app.dataframe(turns).apply(msgspec.json.Decoder(Turn).decode)
    frame = frame.apply(title_of, stateful=True).filter(lambda request: request is not None)
    frame.apply(msgspec.json.encode).to_topic(requests)
    app.run()


if __name__ == "__main__":
    main()
