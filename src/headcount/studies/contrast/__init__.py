"""The study `contrast`."""
