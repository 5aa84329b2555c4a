"""Names of settings: in the environment, and those of the release before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

PREFIX = "PARLEY_"

RENAMED: Mapping[str, str] = MappingProxyType({
    "PARLEY_HISTORY_TURNS": "PARLEY_CONVERSATION_TURNS",
    "PARLEY_HISTORY_TTL_S": "PARLEY_INDEX_TTL_S",
    "PARLEY_FINISH_TIMEOUT_S": "PARLEY_COMMIT_TIMEOUT_S",
    "PARLEY_GATEWAY_DRAIN_S": "PARLEY_DRAIN_S",
})  # fmt: skip
"""Old names of 0.1 that count in 0.2, unless the new one is set as well."""

_IN_VLLM_ARGS = "put `{}` into PARLEY_VLLM_ARGS"
_FIXED = "the value is fixed now"
GONE: Mapping[str, str] = MappingProxyType({
    "PARLEY_SECOND_MODEL": "name the model in the policy file, as [models.NAME]",
    "PARLEY_ADAPTERS_GB": _FIXED,
    "PARLEY_TENSOR_PARALLEL": _IN_VLLM_ARGS.format("tensor_parallel_size"),
    "PARLEY_PIPELINE_PARALLEL": _IN_VLLM_ARGS.format("pipeline_parallel_size"),
    "PARLEY_DATA_PARALLEL": _IN_VLLM_ARGS.format("data_parallel_size"),
    "PARLEY_VLLM_BACKEND": _IN_VLLM_ARGS.format("distributed_executor_backend"),
    "PARLEY_PARTITION_HELD_MB": _FIXED,
    "PARLEY_START_WAIT_S": _FIXED,
    "PARLEY_COMPACTION_LAG_S": _FIXED,
    "PARLEY_TOOL_TIMEOUT_S": "a request has `tool_timeout_ms`",
    "PARLEY_TOOL_ROUNDS": _FIXED,
    "PARLEY_INDEX_BATCH": _FIXED,
    "PARLEY_INDEX_DELAY_S": _FIXED,
    "PARLEY_INDEX_FLUSH_S": _FIXED,
    "PARLEY_USAGE_GRACE_S": "it is five times PARLEY_USAGE_WINDOW_S",
    "PARLEY_METRICS_TENANTS": _FIXED,
    "PARLEY_GATEWAY_PEER_HOST": "the port for gateways binds the host of PARLEY_GATEWAY_ADVERTISE",
    "PARLEY_GATEWAY_STREAMS": _FIXED,
    "PARLEY_GATEWAY_TENANT_STREAMS": _FIXED,
    "PARLEY_GATEWAY_SOCKETS": _FIXED,
    "PARLEY_GATEWAY_ERASURES_PER_MIN": _FIXED,
    "PARLEY_GATEWAY_STALL_S": _FIXED,
    "PARLEY_GATEWAY_HELD_EVENTS": _FIXED,
    "PARLEY_GATEWAY_HELD_MB": _FIXED,
    "PARLEY_GATEWAY_BODIES_MB": _FIXED,
    "PARLEY_GATEWAY_SCAN_RECORDS": _FIXED,
    "PARLEY_GATEWAY_CONNECTIONS": _FIXED,
    "PARLEY_GATEWAY_ADDRESS_CONNECTIONS": _FIXED,
})  # fmt: skip
"""Names of 0.1 without effect, and what to do instead."""


def warnings_of(names: Iterable[str], known: frozenset[str]) -> Iterator[str]:
    """One line for each of these variables that begins with `PARLEY_` and is no setting of this release."""
    for name in sorted({name.upper() for name in names if name.upper().startswith(PREFIX)} - known):
        if name in RENAMED:
            yield f"{name} is now {RENAMED[name]}; the old name counts in this release only"
        elif name in GONE:
            yield f"{name} has no effect any more: {GONE[name]}"
        else:
            yield f"{name} is not a setting of Parley and is ignored"
