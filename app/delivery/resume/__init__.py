"""What survives of an answer: its events in the log, their recovery, and the count of its attempts."""
