"""The demo model: a tiny chat model for a shop's customers, made from nothing by the scripts beside its weights.

`python -m models.demo.train` writes dialogues, trains on them and saves `checkpoint/`; `python -m models.demo.evaluate`
asks the checkpoint what it has never seen and prints how often it is right.
"""

from pathlib import Path

CHECKPOINT = Path(__file__).with_name("checkpoint")
