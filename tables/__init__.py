"""The tables: conversations, ended requests, erased users and usage windows, and when their rows expire."""
