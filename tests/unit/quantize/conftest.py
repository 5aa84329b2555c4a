from tests.unit.models.quantization.conftest import one_thread

__all__ = ["one_thread"]
