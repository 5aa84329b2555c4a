"""Batching: prompts of one partition are collected briefly, so that an engine starts them together."""

from models.batching.batcher import Batcher
from models.batching.flush import Flush, FlushReason
from models.batching.timers import Timer, Timers

__all__ = ["Batcher", "Flush", "FlushReason", "Timer", "Timers"]
