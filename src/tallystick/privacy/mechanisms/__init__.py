"""Exact discrete noise on the integer grid, from a cryptographic stream of words."""

from tallystick.privacy.mechanisms import discrete_gaussian, discrete_laplace
from tallystick.privacy.mechanisms.names import Mechanism
from tallystick.privacy.mechanisms.rational_scale import MAX_SCALE, round_up_scale, round_up_variance

__all__ = ["MAX_SCALE", "Mechanism", "discrete_gaussian", "discrete_laplace", "round_up_scale", "round_up_variance"]
