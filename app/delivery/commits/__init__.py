"""What is committed: groups of commits, offsets, the checkpoint, changelogs, the watermark."""
