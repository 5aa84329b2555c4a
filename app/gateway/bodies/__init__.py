"""How the body of a request is read, checked and described."""
