"""vLLM behind the interface of `models.generation`, for models that need several GPUs or machines.

vLLM pins its own torch, so it needs an environment of its own (the extra `vllm`); nothing here imports it before an
engine is created. Text, stop strings and ends are derived from the tokens here, as with the torch engine. Three
guarantees are weaker. vLLM draws from a generator per request and not by `(seed, index)`, so a resumed sampled answer
continues the existing text, but not with the tokens that it would have had. Its grammar cannot begin in the middle of
an answer, so a resumed answer with a constraint ends as `partial`. Its greedy answers may depend on the batch.
"""

from models.vllm.engine import VllmEngine, VllmOptions, create_vllm_engine

__all__ = ["VllmEngine", "VllmOptions", "create_vllm_engine"]
