"""Texts under head sets: decoding."""
