"""The version, in one place for code; pyproject.toml states the same (a test compares)."""

__version__ = "0.1.0"
