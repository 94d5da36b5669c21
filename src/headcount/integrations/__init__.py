"""Integrations with other programs: Ray, lm-eval."""
