class VLLMError(Exception):
    pass


class VLLMClientError(VLLMError):
    """The request is at fault."""


class VLLMServerError(VLLMError):
    pass


class VLLMValidationError(VLLMClientError):
    pass
