"""Answers to identical requests are repeated: `[cache]`."""
