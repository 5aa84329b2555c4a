"""Agents that are programs: what an answer does is decided by code of others, a step at a time."""
