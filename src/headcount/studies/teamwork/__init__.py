"""The study `teamwork`."""
