"""Networks and the checkpoints that hold them."""
