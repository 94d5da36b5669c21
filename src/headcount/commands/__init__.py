"""What each command does. One file per command; torch is loaded here, not in the command line."""
