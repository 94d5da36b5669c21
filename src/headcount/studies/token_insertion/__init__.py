"""The study `token-insertion`."""
