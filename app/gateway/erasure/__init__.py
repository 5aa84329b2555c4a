"""Which data of a user is erased, and how far an erasure has come."""
