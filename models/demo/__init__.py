"""The demo model: a tiny chat model for a shop's customers, trained from scratch (checkpoint/README.md).

`CALIBRATION` and `HELD_OUT` are dialogues of its shop, one JSON object with `messages` a line.
"""

from pathlib import Path

CHECKPOINT = Path(__file__).with_name("checkpoint")
CALIBRATION = Path(__file__).with_name("calibration.jsonl")
HELD_OUT = Path(__file__).with_name("held_out.jsonl")
