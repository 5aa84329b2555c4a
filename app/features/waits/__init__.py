"""Answers that wait without being open: they fall asleep, and wake."""
