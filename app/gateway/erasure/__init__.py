"""Which data is erased, and how far an erasure has come."""
