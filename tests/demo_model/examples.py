"""The dialogues with which `parley quantize` calibrates and examines.

`python -m tests.demo_model.examples` writes them. The held-out ones share no name and no item with the others.
"""

from __future__ import annotations

import itertools
import json

from models.demo import CALIBRATION, HELD_OUT
from tests.demo_model.dialogues import Split, dialogues

SEED = 7
COUNTS = {CALIBRATION: (Split.TRAINING, 256), HELD_OUT: (Split.HELD_OUT, 96)}


def lines(split: Split, count: int) -> str:
    """Each dialogue as one line of JSON; its last message is the right answer."""
    written = []
    for dialogue in itertools.islice(dialogues(SEED, split), count):
        last = len(dialogue.turns) - 1
        messages = [*dialogue.messages(last), {"role": "assistant", "content": dialogue.turns[last].answer}]
        written.append(json.dumps({"messages": messages}, ensure_ascii=False))
    return "\n".join(written) + "\n"


if __name__ == "__main__":
    for path, (split, count) in COUNTS.items():
        path.write_text(lines(split, count))
