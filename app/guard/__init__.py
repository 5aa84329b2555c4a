"""The guard of the policy: what private values are in the texts that a model reads.

| module | subject |
|---|---|
| guard.py | the guard of one worker, by the policy in force |
| analyzer.py | find private values in texts, in a thread |
| turns.py | users and tenants take turns at it, and at the judges |
| remembered.py | verdicts about a user's last texts |
| presidio.py | Presidio's engine and recognizers |
| packaged_pipeline.py | the default spaCy pipeline |

Placeholders are models/private; the key of a partition's placeholders is app/delivery/guard_secret.py.
"""
