"""headcount tells which attention heads a language model needs."""

__version__ = "0.1.0"
