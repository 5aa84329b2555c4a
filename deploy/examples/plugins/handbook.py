"""A stage: the model reads the pages of a handbook that fit the question.

[plugins.handbook]
folder = "/srv/handbook"    # Markdown files
most = 2                    # of them in a prompt
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parley_client.plugins import Asked, Decision, Feature, Prompt, Refused

_MOST_CHARACTERS = 4000


class Handbook(Feature):
    blocks = False  # the pages are in memory: each call is over in a moment

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._most = int(settings.get("most", 2))
        self._pages = {path.stem: path.read_text() for path in sorted(Path(settings["folder"]).glob("*.md"))}
        if not self._pages:
            raise ValueError(f"{settings['folder']} has no Markdown files")

    async def decide(self, asked: Asked) -> Decision:
        """The pages with their texts: the handbook may have changed when another worker goes on with the answer."""
        words = _words_of(asked.prompt)
        if "payroll" in words:
            raise Refused("questions about payroll go to payroll@example.org")
        fitting = sorted(self._pages, key=lambda name: -len(words & _words_of(self._pages[name])))
        chosen = [name for name in fitting if words & _words_of(self._pages[name])][: self._most]
        return {name: self._pages[name][:_MOST_CHARACTERS] for name in chosen}

    def rewrite(self, prompt: Prompt, decision: Decision) -> Prompt:
        if not decision:
            return prompt
        pages = "\n\n".join(f"# {name}\n{text}" for name, text in sorted(decision.items()))
        return Prompt(prompt.prompt, f"{prompt.instructions}Answer by these pages:\n\n{pages}")

    def figures(self) -> Mapping[str, float]:
        return {"pages": len(self._pages)}


def _words_of(text: str) -> set[str]:
    return set(re.findall(r"\w{4,}", text.lower()))
