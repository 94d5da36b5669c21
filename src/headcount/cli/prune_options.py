"""The options of `headcount prune`; nothing here loads torch."""

from __future__ import annotations

from headcount.cli.parser import Parser, add_settings
from headcount.studies.pruned.config import PruneSettings


def add_prune_options(parser: Parser) -> None:
    """How much is kept, where the checkpoint goes, how heads are chosen, and what is measured."""
    option = parser.option
    option("--keep-groups", "N", "key/value groups to keep in every layer")
    share = "share of the cache to keep, above 0 and up to 1: the nearest number of groups"
    option("--cache", "X", share)
    heads = "query heads of each group to keep; the cache stays whole"
    option("--keep-heads-per-group", "N", heads)
    folder = "folder to write, which must not exist yet; measurements go into OUT/measured"
    option("--out", "FOLDER", folder, required=True)
    add_settings(parser, PruneSettings)
