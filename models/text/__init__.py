"""From token ids to text, reasoning and calls."""
