"""Topics of others in a worker: what their records lead to, and what answers leave there."""
