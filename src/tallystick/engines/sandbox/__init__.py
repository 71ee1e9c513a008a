"""Where a user's program file runs inside a role: a locked child process, never the role itself."""
