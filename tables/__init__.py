"""The tables of a partition (`records.Table` lists them), and when their rows expire."""
