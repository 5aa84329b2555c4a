"""The guard of the policy, `[guard]`: what models, the index and readers may see.

| module | subject |
|---|---|
| masking.py | private values are hidden from models, and put back for readers |
| moderation.py | prompts and answers are judged |
| stored.py | turns as the index has them |
| texts.py | the texts that the guard reads |
| secret.py | the key of a partition's placeholders |
| guard.py | the guard of one worker, by the policy in force |
| analyzer.py | find private values in texts, in a thread |
| fair_order.py | users and tenants take turns at it, and at the judges |
| remembered.py | verdicts about a user's last texts |
| presidio.py | Presidio's engine and recognizers |
| packaged_pipeline.py | the default spaCy pipeline |

Placeholders are app/private.
"""
