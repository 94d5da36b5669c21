"""The study `head-roles`."""
