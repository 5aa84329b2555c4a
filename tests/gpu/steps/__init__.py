"""A module a step: `run(report, scale)` writes its figures, and raises if something is wrong."""
