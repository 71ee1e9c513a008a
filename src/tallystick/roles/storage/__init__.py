"""What must survive kill -9, and what must be gone from the disk: records, secrets, and the crash points between."""
