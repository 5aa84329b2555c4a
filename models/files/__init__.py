"""The files of a checkpoint: which there are, whether they are whole, what they hold. Nothing here computes."""
