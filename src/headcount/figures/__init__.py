"""Figures: plain tables in, matplotlib figures out. Imports nothing else of the package."""
