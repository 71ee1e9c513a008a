"""Quantiles from sums: a grid of values, what is known of ranks, where to look next, and the program that asks."""
