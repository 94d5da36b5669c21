"""The study `heads-kept`."""

from headcount.studies.heads_kept.study import KIND

__all__ = ["KIND"]
