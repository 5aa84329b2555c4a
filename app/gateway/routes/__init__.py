"""What the gateway answers, path by path."""
