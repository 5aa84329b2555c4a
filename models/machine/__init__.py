"""The machine that computes: its GPU, its memory, scripts that release the GIL."""
