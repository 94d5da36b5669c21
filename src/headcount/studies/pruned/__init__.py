"""The study `pruned`."""
