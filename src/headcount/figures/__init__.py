"""Figures: tables in, matplotlib figures out; imports nothing else of the package."""
