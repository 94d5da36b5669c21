"""Finished results: their folders, and a web page in one file that loads nothing from outside."""

from __future__ import annotations

from headcount.report.page import page, write_page
from headcount.report.read import Result, find_results, read_result

__all__ = ["Result", "find_results", "page", "read_result", "write_page"]
