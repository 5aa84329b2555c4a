"""Prompts of one partition are gathered for a moment, so that an engine begins them together."""

from models.batching.batcher import Batcher
from models.batching.flush import Flush, FlushReason
from models.batching.timers import Timer, Timers

__all__ = ["Batcher", "Flush", "FlushReason", "Timer", "Timers"]
