"""Replies that last: event streams and WebSockets, to readers that may be slow or gone."""
