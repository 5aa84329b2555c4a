"""Judges: which categories a text belongs to. Each judge is one module; `judging.py` asks those that a policy needs."""
