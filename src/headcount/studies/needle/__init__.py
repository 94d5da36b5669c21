"""The study `needle`."""
