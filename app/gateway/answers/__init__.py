"""Answers as readers follow them: live in memory, or read from the log."""
