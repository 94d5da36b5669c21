"""The study `silent-heads`."""
