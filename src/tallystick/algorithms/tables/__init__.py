"""Tables of what the records are like."""
