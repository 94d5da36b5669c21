"""The study `transfer`."""
