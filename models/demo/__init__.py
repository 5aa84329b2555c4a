"""The demo model: a tiny chat model for a shop's customers, trained from scratch (checkpoint/README.md)."""

from pathlib import Path

CHECKPOINT = Path(__file__).with_name("checkpoint")
