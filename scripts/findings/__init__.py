"""The tables of findings: a module for each study or page, and in it a function for each table."""

from importlib import import_module
from pathlib import Path

from findings.tables import TABLES

for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    import_module(f"findings.{path.stem}")

__all__ = ["TABLES"]
