"""Records of `audit`: what happened to each request, erasure, search and denied access. They hold no text."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class AuditAction(StrEnum):
    """
    request: A request has ended; `outcome` is its finish reason or error code.
    refusal: A record that is not a valid request; `outcome` is its error code.
    erasure: A user was erased, or the conversation that is named, in Kafka and Milvus.
    search: A user has searched the history.
    denied: A gateway has refused a caller; `outcome` is the error code.
    approval: A call waits for an approval (`asked`), or that is over: `approved`, `edited`, `rejected`, `expired` or
        `cancelled`. `by` was asked, or has decided.
    retreat: A worker gives an arm of an experiment no more users; the user is `parley`.
    admin: An administrator has used a gateway; `outcome` says for what.
    """

    REQUEST = "request"
    REFUSAL = "refusal"
    ERASURE = "erasure"
    SEARCH = "search"
    DENIED = "denied"
    ADMIN = "admin"
    RETREAT = "retreat"
    APPROVAL = "approval"


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One link of the chain of its partition.

    `sequence` counts from 0, and `previous` is the SHA-256 of the value of the record before it
    (app/delivery/commits/audit_chain.py).

    `count` equal events of one second are one record of a gateway. `at` is in Unix milliseconds, `prompt_sha256`,
    `answer_sha256` and `arguments_sha256` are keyed digests (HMAC-SHA-256) of the SHA-256 of the texts in UTF-8.
    """

    sequence: int = 0
    previous: str = ""
    action: AuditAction
    outcome: str
    user_id: str
    at: int
    tenant: str | None = None
    request_id: str | None = None
    conversation_id: str | None = None
    model_version: str | None = None
    route: str | None = None
    experiment: str | None = None
    arm: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    categories: tuple[str, ...] = ()
    prompt_sha256: str | None = None
    answer_sha256: str | None = None
    count: int = 1
    tool_call_id: str | None = None
    by: str | None = None
    arguments_sha256: str | None = None
