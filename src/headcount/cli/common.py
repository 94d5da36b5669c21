"""Helpers of all commands: models and labs from arguments, forecasts, answers and tables."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headcount.cli.parser import parse_settings
from headcount.errors import HeadcountError, unknown
from headcount.registry import join_settings, settings_of
from headcount.store import Store
from headcount.system.files import to_json

if TYPE_CHECKING:  # commands without a model answer at once: torch takes seconds to import
    import numpy as np
    from jaxtyping import Float

    from headcount.claims import Claim
    from headcount.engine.measure.cost import Request
    from headcount.lab import Lab
    from headcount.models.model import Model

LOADING = ("dtype", "device", "device_map", "attention", "revision", "trust_remote_code")


class Answer(NamedTuple):
    """The result of a command: as JSON for programs, and as text for readers.

    `notes` are sentences of the text that a reader of the JSON must know, too; `code` is the exit
    code.
    """

    document: Any
    text: object
    notes: Sequence[str] = ()
    code: int = 0

    def print(self, *, as_json: bool) -> None:
        """Print one of the two; an empty text is not printed."""
        if as_json or self.text:
            print(to_json(self.document) if as_json else self.text)
        for note in self.notes if as_json else ():
            _say_on_stderr(note)


def model_from(
    arguments: Namespace, name: str | None = None, loading: Mapping[str, Any] | None = None
) -> Model:
    """Load the model that the arguments name, or the one of this name.

    `loading` are settings for all models or under a model's name, which options prevail over.
    """
    from headcount.models.model import load_model

    name = arguments.model if name is None else name
    if (served := getattr(arguments, "served", None)) is not None:
        how = {option: getattr(arguments, option) for option in ("revision", "trust_remote_code")}
        model: Model = served.model(name, **how)
        return model
    given = {option: getattr(arguments, option) for option in LOADING}
    given = {option: value for option, value in given.items() if value not in (None, False)}
    by_name = parse_settings(getattr(arguments, "model_set", ()))
    chosen = settings_of(join_settings(join_settings(loading or {}, given), by_name), name)
    for option in chosen:
        if option not in LOADING:
            raise unknown("setting for loading a model with the name", option, LOADING)
    return load_model(name, **chosen)


def gates_from(arguments: Namespace, model: Model) -> Float[np.ndarray, "heads"]:
    """The head set that the arguments name: these heads are off, or with --keep all others."""
    heads = [model.layout.parse(text) for text in " ".join(arguments.heads).split()]
    return model.layout.gates(**{"keep" if getattr(arguments, "keep", False) else "off": heads})


@contextmanager
def lab_from(arguments: Namespace) -> Iterator[Lab]:
    """The lab that the arguments ask for: its store, its executor, and what it shows.

    A cluster or a server that cannot be reached is refused before a model is loaded.
    """
    address, count = getattr(arguments, "ray", None), getattr(arguments, "workers", None)
    if address is None and count is not None:
        raise HeadcountError("--workers counts the workers of a Ray cluster: give --ray as well.")
    if address is not None and getattr(arguments, "server", None):
        raise HeadcountError("Measure on a Ray cluster or on a server: give --ray or --server.")
    from headcount.lab import Lab

    if getattr(arguments, "explain", False):
        log = logging.getLogger("headcount.plan")
        log.setLevel(logging.INFO)
        if not log.handlers:
            log.addHandler(logging.StreamHandler(sys.stderr))
    lab = Lab(store=None, progress=not arguments.quiet, say=_say_on_stderr)
    with ExitStack() as opened:
        if arguments.store:
            lab.store = opened.enter_context(Store.open(arguments.store))
        elif not arguments.no_store:
            lab.store = Store.default()
        if address is not None:
            from headcount.integrations.ray import ray_executor

            lab.executor = opened.enter_context(ray_executor(address, workers=count))
        if getattr(arguments, "server", None):
            from headcount.integrations.served import Served

            lab.executor = arguments.served = Served(
                arguments.server,
                arguments.adapters,
                precision=arguments.precision,
                write=arguments.write_adapters,
                api_key=os.environ.get("HEADCOUNT_SERVER_KEY"),
            )
        yield lab


def _say_on_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tell_store(arguments: Namespace, lab: Lab) -> None:
    """Print where measurements are kept."""
    if lab.store is not None and not arguments.quiet:
        _say_on_stderr(f"Measurements are kept in {lab.store.path}; --no-store keeps nothing.")


def announce(arguments: Namespace, lab: Lab, requests: Iterable[Request]) -> Answer | None:
    """Print what these requests will measure; with --dry-run, return that as the answer.

    The answer also says what they take on machines of which rates are known.
    """
    if arguments.dry_run:
        cost = lab.cost(requests)
        others = cost.elsewhere() if cost.tokens else []
        document = cost.to_json() | {"elsewhere": {o.device: o.to_json() for o in others}}
        return Answer(document, "\n".join(map(str, [cost, *others])))
    tell_store(arguments, lab)
    if not arguments.quiet:
        _say_on_stderr(str(lab.cost(requests)))
    return None


def command_line(arguments: Namespace) -> str:
    """The command for the record, without the options that only change what is printed."""
    printing = ("--json", "--quiet", "--explain")
    return "headcount " + shlex.join(word for word in arguments.words if word not in printing)


def claim_lines(claims: Iterable[Claim]) -> list[str]:
    """A line for each claim: verdict, measured value, and the interval or why there is none."""
    lines = []
    for c in claims:
        measured = f": {c.measured:+.2f}" if c.measured == c.measured else ""
        ends = f" [{c.low:+.2f}, {c.high:+.2f}]" if c.low <= c.high else ""
        why = f". {c.reason}" if c.reason else ""
        if c.verdict == "undecided" and c.detectable == c.detectable:
            why += f" (a truth {c.detectable:.2g} beyond the margin would be found 8 times in 10)"
        lines.append(f"{c.verdict}: {c.claim}{measured}{ends}{why}")
    return lines


def files_text(paths: Sequence[Path]) -> str:
    """The paths of the picture and the page, and the names of the other files in the folder."""
    shown = (".png", ".csv", ".gz", ".json")
    others = [path.name for path in paths[1:] if path.suffix in shown]
    others += ["scores/"] * (paths[0].parent / "scores").is_dir()
    what = "picture" if paths[0].suffix == ".png" else "table"  # a study may have nothing to draw
    return (
        f"\nThe {what}: {paths[0]}\nIn the same folder: {', '.join(others)}\n"
        f"Everything on one page, for a browser: {paths[-1]}"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A header and rows as text; each column is as wide as its widest cell."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
