"""Scores, protocols, reports and checks; models are known as callables alone."""
