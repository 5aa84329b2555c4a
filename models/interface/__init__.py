"""What an engine is asked, and what it answers; queues and shares in front of it. Nothing here imports torch."""
