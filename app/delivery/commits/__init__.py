"""What is committed: groups of commits, offsets, the handover, changelogs, the watermark."""
