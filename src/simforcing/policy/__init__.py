"""Policies that start from a world model's experts; empty so far."""
