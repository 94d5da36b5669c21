"""The study `edges-kept`."""
