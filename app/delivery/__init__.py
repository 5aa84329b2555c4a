"""Delivery: how each record of a partition gets exactly one outcome, whatever crashes.

A partition that is assigned to this worker (partition.py) goes through one ownership after another (ownership.py). An
ownership begins with a fence on `tokens`, whose offset is its epoch. Token events are written under that epoch and
outside transactions (resume/tokens.py); everything else that a request leaves behind is one transaction
(commits/commit.py). A new owner recovers partial answers from the log (resume/recovery.py) and rows from the changelogs
(commits/changelog.py). The metadata of the committed offset says where to begin (commits/handover.py).
"""
