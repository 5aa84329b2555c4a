"""Helpers of every process: how it starts, ends, and writes to terminals and logs."""
