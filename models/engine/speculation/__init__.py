"""Speculative decoding: draft tokens, compute them in one step, keep the correct ones (see drafting)."""
