from __future__ import annotations


class DemoError(Exception):
    """A step of the demo failed; one line for people."""
