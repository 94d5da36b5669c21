"""The study `token-insertion`."""

from headcount.studies.token_insertion.study import KIND

__all__ = ["KIND"]
