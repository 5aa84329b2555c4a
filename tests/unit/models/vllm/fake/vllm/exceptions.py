class VLLMValidationError(Exception):
    """The request is at fault; of the same name and place in every version, but of different bases."""
