"""What one caller may cost: connections, bytes, rates, and shares of expensive work."""
