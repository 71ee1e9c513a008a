"""Programs that users write: what they may say, how they are checked, and how their map becomes machine code."""
