"""Carries encoded messages between parties: in memory here, over sockets in ``network``."""
