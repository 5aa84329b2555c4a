"""Agents of the policy: who answers as one, and who asks one."""
