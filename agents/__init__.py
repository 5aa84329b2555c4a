"""One file per Faust agent: what happens to each record of its topic."""
