"""Gaussians with diagonal covariances: one for each class, or a mixture of them."""
