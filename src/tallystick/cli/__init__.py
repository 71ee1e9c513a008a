"""The command line. Importing it is cheap: every heavy import waits until its command runs."""
