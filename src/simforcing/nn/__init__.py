"""Blocks that two or more models use, and the tensors and Protocols they exchange."""
