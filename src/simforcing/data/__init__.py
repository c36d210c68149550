"""Stored episodes to network inputs: readers, writers, windows, latents."""
