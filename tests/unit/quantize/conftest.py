from tests.unit.models.weights.quantized.conftest import one_thread

__all__ = ["one_thread"]
