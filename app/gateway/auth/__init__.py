"""Who may call: API keys, JWTs, and development mode on this machine."""
