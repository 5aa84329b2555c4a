"""Records of other people's topics: what of them is a request, and what of a turn they get to read."""
