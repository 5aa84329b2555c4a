"""What models, the index and readers may see: `[guard]`."""
