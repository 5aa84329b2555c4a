from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class AsyncEngineArgs:
    model: str = ""
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_logprobs: int = 20
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.92
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    data_parallel_backend: str = "mp"
    distributed_executor_backend: str | None = None
    scheduling_policy: str = "fcfs"
    logits_processors: list[str | type] | None = None
    speculative_config: dict[str, Any] | None = None
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    max_cpu_loras: int | None = None
