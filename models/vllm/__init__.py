"""vLLM behind the interface of `models.generation`: for a model that needs many GPUs, of one machine or of several.

vLLM pins its own torch, so it lives in an environment of its own (the extra `vllm`); nothing here imports it before an
engine is made. What Parley promises is kept where vLLM can keep it: text, stop strings and ends are made of the tokens
here, as for the torch engine. Three things differ. vLLM draws from a generator per request and not by `(seed, index)`,
so a resumed sampled answer goes on behind what was said, but not with the words it would have had. Its grammar cannot
begin in mid-answer, so a resumed answer with a shape ends as `partial`. And its greedy answers may differ by batch.
"""

from models.vllm.engine import VllmEngine, VllmOptions, create_vllm_engine

__all__ = ["VllmEngine", "VllmOptions", "create_vllm_engine"]
