"""Texts of users, tools and documents that name tokens of control, without those names."""
