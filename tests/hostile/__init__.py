"""Hostile requests and records among good ones, against a real broker, worker and gateway (`make hostile`)."""
