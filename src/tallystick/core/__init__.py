"""Errors, identifiers, and the interfaces of randomness and time. Nothing here does anything to the world."""
