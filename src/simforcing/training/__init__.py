"""Objectives, and the one trainer of all stages."""
