"""The papers' figures, measured with the product's parts; not in the wheel. See README.md beside this file."""
