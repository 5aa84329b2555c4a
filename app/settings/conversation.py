"""Settings of what is remembered: conversations, ids of requests, and the index of turns in Milvus."""

from __future__ import annotations

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings


class ConversationSettings(BaseSettings):
    conversation_turns: int = Field(10, ge=0, description="newest turns of a conversation that a prompt includes")
    conversation_ttl_s: float = Field(1800.0, gt=0, description="a conversation expires this long after its last turn")
    dedup_s: float = Field(
        86400.0, gt=0, description="a repeated request id is a duplicate for this long after the request's end"
    )
    sweep_interval_s: float = Field(30.0, gt=0, description="interval of the deletion of expired conversations")
    embedder: str = Field(
        "minilm", min_length=1, description="`minilm`, a folder, a Hugging Face name, or `none`: no index"
    )
    store: str = Field(
        "milvus", min_length=1, description="vector store of the history: `milvus`, or the name of a plug-in"
    )
    milvus_uri: str = Field("http://127.0.0.1:19530", description="Milvus server")
    milvus_token: str = Field("", description="Milvus token, if the server requires one", repr=False)
    milvus_collection: str = Field("turns", min_length=1, description="collection of the history")
    index_ttl_s: float | None = Field(
        None, ge=0, description="retention of rows in Milvus; 0: for ever; empty: the retention of `turns`"
    )

    @property
    def has_index(self) -> bool:
        return self.embedder != "none"

    @field_validator("index_ttl_s", mode="before")
    @classmethod
    def _empty_ttl_is_unset(cls, value: object) -> object:
        return None if value == "" else value
