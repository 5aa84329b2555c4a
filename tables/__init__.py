"""What is remembered: conversations, ended requests, erased users, and the rules of forgetting."""
