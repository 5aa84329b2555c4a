"""Clients of OpenAI's API in their default ways, each in an environment of its own: `make clients`."""
