"""The demo model: a tiny chat model for a shop's customers, trained from scratch.

`python -m models.demo.training.train` generates dialogues, trains on them and saves `checkpoint/`.
`python -m models.demo.training.evaluate` asks the checkpoint questions that it has never seen and prints how often it
is right. The training is not part of the wheel.
"""

from pathlib import Path

CHECKPOINT = Path(__file__).with_name("checkpoint")
