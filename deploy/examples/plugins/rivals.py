"""A judge: texts that name a rival's product.

[guard]
answer = { rival = "block" }
[guard.judges.rivals]
names = ["Acme", "Globex"]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from parley_client.plugins import Judge


class Rivals(Judge):
    categories = ("rival",)

    def __init__(self, settings: Mapping[str, Any]) -> None:
        names = [re.escape(str(name)) for name in settings["names"]]
        self._names = re.compile(rf"\b(?:{'|'.join(names)})\b", re.IGNORECASE)

    async def scores(self, texts: Sequence[str]) -> Sequence[Mapping[str, float]]:
        return [{"rival": 1.0 if self._names.search(text) else 0.0} for text in texts]
