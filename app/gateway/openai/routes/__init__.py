"""The HTTP routes of OpenAI's API."""

from app.gateway.asking import routes as _routes  # noqa: F401 - their convertor is in paths here
