"""Judges: which categories a text belongs to. Each judge is one module; `judges.py` asks those that a policy needs."""
