"""Protocols as machines without I/O: who says what to whom, and when nothing may be said."""
