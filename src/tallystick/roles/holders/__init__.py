"""Institutions that hold different columns, as processes: they find whom they share, and multiply what they hold."""
