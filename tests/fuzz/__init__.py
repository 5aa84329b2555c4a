"""Rubbish against a running gateway and worker, which have to stay as they are: `python -m tests.fuzz`."""
