"""The trust models, a folder each: its section of the study, its words, its simulation, its parts of the roles."""
