"""The study `head-roles`."""

from headcount.studies.head_roles.study import KIND

__all__ = ["KIND"]
