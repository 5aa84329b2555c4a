"""Filter expressions. Values are written as literals: milvus-lite has no parameters."""

from __future__ import annotations

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def literal(value: str) -> str:
    r"""A string literal that means exactly `value`.

    Not JSON's: milvus-lite has no `\u`. It and a server accept other control characters unescaped.
    """
    return f'"{value.translate(_ESCAPES)}"'


def turns_where(
    user_id: str,
    *,
    conversation_id: str | None = None,
    role: str | None = None,
    since_ms: int | None = None,
    before_ms: int | None = None,
    asked_after_ms: int | None = None,
    asked_until_ms: int | None = None,
) -> str:
    """The rows of one user whose turns ended from `since_ms` to just before `before_ms`.

    `asked_after_ms` and `asked_until_ms` filter by the time of the request, which rows of older collections lack.
    """
    terms = [f"user_id == {literal(user_id)}"]
    if conversation_id is not None:
        terms.append(f"conversation_id == {literal(conversation_id)}")
    if role is not None:
        terms.append(f"role == {literal(role)}")
    if since_ms is not None:
        terms.append(f"created_at >= {since_ms:d}")
    if before_ms is not None:
        terms.append(f"created_at < {before_ms:d}")
    if asked_after_ms is not None:
        terms.append(f"asked_at > {asked_after_ms:d}")
    if asked_until_ms is not None:
        terms.append(f"asked_at <= {asked_until_ms:d}")
    return " and ".join(terms)
