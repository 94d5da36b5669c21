"""The study `masked-heads`: TopK against RandomK masking on cognitive functions."""

from headcount.studies.masked_heads.study import KIND

__all__ = ["KIND"]
