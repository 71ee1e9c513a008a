"""Shares at a server: on their way in, on disk, and summed."""
