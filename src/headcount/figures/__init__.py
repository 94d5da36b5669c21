"""Figures: tables in, matplotlib figures out; never a model."""
