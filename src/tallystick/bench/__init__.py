"""``tallystick bench``: measurements for a machine of one's own, each beside a reference in the same run."""
