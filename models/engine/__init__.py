"""The torch engine: continuous batching of many answers over one model.

Jobs come in and events go out on the event loop; a separate thread computes. Start with `worker` for the course of a
step, `scheduler` for what a step computes; how is `models/compute`.
"""

from models.engine.speculation.drafting import SpeculationMode
from models.engine.torch_engine import EngineOptions, TorchEngine
from models.interface.token_stream import EngineDied

__all__ = ["EngineDied", "EngineOptions", "SpeculationMode", "TorchEngine"]
