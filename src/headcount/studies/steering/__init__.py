"""The study `steering`."""
