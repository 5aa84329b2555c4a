"""The next token: noise, changes of logits, log probabilities, the draw."""
