from vllm.exceptions import VLLMServerError


class EngineDeadError(VLLMServerError):
    pass
