"""The operator's rules: the models of a worker, and which of them answers a request.

The policy is one TOML file, `PARLEY_POLICY`. Workers and gateways check it (check.py) when they start, and read it
again when it changes. Decisions are functions of the request, the policy and the figures of the worker. The pipeline
(app/answering) writes a decision to `tokens`, as the notice `plan`, before the first token that depends on it; the next
owner of the partition follows the notice and decides nothing again.
"""
