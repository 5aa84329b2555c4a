"""The features of the policy: each gives an answer a stage, or nothing (app/answering/stage.py)."""
