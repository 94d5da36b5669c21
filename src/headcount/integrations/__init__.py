"""Integrations with other programs: Ray."""
