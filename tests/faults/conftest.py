"""Workers start warm in the short tests; those of `make faults` start cold."""

from tests.integration.conftest import starts

__all__ = ["starts"]
