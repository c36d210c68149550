"""Rectified flow in latent space: pure functions that know no network and no modality. sigma: 1 = noise, 0 = clean."""
