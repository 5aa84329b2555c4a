"""Agents of the policy: requests that name one, and answers that ask one."""
