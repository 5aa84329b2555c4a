"""The audit log: how its records form chains, how a chain is verified, and how its head is signed."""
