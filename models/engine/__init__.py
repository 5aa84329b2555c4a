"""The torch engine: continuous batching of many answers over one model, token by token.

Jobs go in and events come out on the event loop; a thread of its own computes. Read `worker` for the course of a step,
`scheduler` for what it computes, `attention` and `batch` for how.
"""

from models.engine.speculation import SpeculationMode
from models.engine.stream import EngineDied
from models.engine.torch_engine import EngineOptions, TorchEngine, create_engine

__all__ = ["EngineDied", "EngineOptions", "SpeculationMode", "TorchEngine", "create_engine"]
