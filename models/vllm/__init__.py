"""vLLM behind the interface of `models.interface.generation`, for models that need several GPUs or machines.

vLLM pins its own torch, so it needs an environment of its own (the extra `vllm`); nothing here imports it before an
engine is created. Text, stop strings and ends are derived from the tokens here, as with the torch engine. Parley's
sampler and grammars run inside vLLM (processor.py), so a resumed answer goes on with the tokens that it would have had,
as far as vLLM's logits do not depend on the batch. Where vLLM speculates there is no place for them: a resumed sampled
answer then has other tokens, and one with a constraint ends as `partial`.
"""

from models.vllm.engine import VllmEngine, VllmOptions, create_vllm_engine

__all__ = ["VllmEngine", "VllmOptions", "create_vllm_engine"]
