"""What customers talk about. A topic is a function from a customer to the turns that it takes."""
