"""The file of a ledger's results, written again after every row."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from contestants import CONTESTANTS
from machine import describe_machine, describe_versions

FORMAT = "headcount ledger 1"


class Book:
    """The file of results, written again after every row."""

    def __init__(self, path: Path | None, arguments: argparse.Namespace) -> None:
        self.path = path
        self.content: dict[str, Any] = {
            "format": FORMAT,
            "command": "python benchmarks/ledger.py " + " ".join(sys.argv[1:]),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": describe_machine(),
            "versions": describe_versions([one.distribution for one in CONTESTANTS.values()]),
            "threads": torch.get_num_threads(),
            "dtype": arguments.dtype,
            "device": arguments.device,
            "races": [],
        }

    def race(self, **facts: Any) -> dict[str, Any]:
        """A new table, to which rows are added."""
        table: dict[str, Any] = {**facts, "rows": []}
        self.content["races"].append(table)
        return table

    def write(self) -> None:
        """Replace the file at once, so that it is never half written."""
        if self.path is not None:
            beside = self.path.with_suffix(".part")
            beside.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
            os.replace(beside, self.path)
