"""The papers' figures and the peers, one command each; see `tallystick bench --help`."""
