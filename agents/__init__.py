"""The Faust agents: one file per topic, plus the timers and functions that they share."""
