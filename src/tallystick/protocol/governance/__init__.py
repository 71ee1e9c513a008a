"""Governed studies: signed statements and where they leave a study. Pure: time is an argument, files are elsewhere."""
