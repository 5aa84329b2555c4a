"""Parley's own features behind the door for plug-ins: they import `parley_client.plugins`, and no other part of Parley.

| module | feature | on by |
|---|---|---|
| homes.py | who belongs to this deployment | `region` and `group` of `[tenants.NAME]` |
| user_limit.py | how many requests a user may send | `user_requests_per_min` of `[tenants.NAME]` |
| best_answer.py | which of several answers readers get | `best_of` of a request |

The others cannot be written so (docs/plugins.md).
"""
