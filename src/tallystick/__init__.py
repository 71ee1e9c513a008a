"""Tallystick."""
