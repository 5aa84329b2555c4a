from __future__ import annotations

import hashlib


def digest_of(text: str) -> bytes:
    """16 bytes that stand for a text among those whose verdict is remembered."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
