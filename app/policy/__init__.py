"""The operator's rules: the models of a worker, and which of them answers a request.

The policy is one TOML file, `PARLEY_POLICY`. It is checked when the worker starts and read again when it changes.
Decisions are functions of the request, the policy and the figures of the worker. The pipeline (app/answering) writes a
decision to `tokens`, as the notice `plan`, before the first token that depends on it; the next owner of the partition
follows the notice and decides nothing again.
"""
