"""The study `masked-heads`."""
