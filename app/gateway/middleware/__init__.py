"""What every request passes before its route: limits below HTTP, then ASGI middlewares."""
