"""The study `heads-kept`."""
