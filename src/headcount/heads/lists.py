"""Lists of heads in the formats of other tools: read, and written.

A file that has a score for every head of a model becomes `HeadScores`. One that names only some
heads is a `HeadList`, which becomes `HeadScores` as soon as the model's layout is known: the heads
that it names have the scores 1, (n − 1) / n, …, 1 / n in its order (all 1, if it has none), and all
others have 0. `docs/head-lists.md` shows each format by example.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.errors import HeadcountError, counted, unknown
from headcount.heads.head import FORMAT as HEAD_SET
from headcount.heads.head import Head, HeadLayout, HeadSet, Unit
from headcount.heads.scores import HeadScores
from headcount.system.files import checked_path, read_json, read_limited, write_file

DATA = Path(__file__).parent / "data"
SHIPPED = {path.stem: path for path in sorted(DATA.glob("*.json"))}
"""Published lists that come along, by name."""

TABLES = ("full_attention_heads", "adapter_weights")  # of DuoAttention, and of RLKV
JSON, YAML, TABLE = (".json", ".json.gz"), (".yaml", ".yml"), (".tsv",)
KEY = re.compile(r"(\d{1,6})-(\d{1,6})")  # LAYER-HEAD
WHAT = "a list of heads"


@dataclass(frozen=True)
class HeadList:
    """Some heads of a model, best first, that were chosen by somebody else.

    `ordered` is false if the order means nothing. `parameters` tell where the list comes from; of
    these, "model" is the name of the model that it is for.

    >>> found = HeadList((Head(1, 0), Head(0, 1)), "by hand")
    >>> found.scores(HeadLayout((2, 2))).values.tolist()
    [0.0, 0.5, 1.0, 0.0]
    """

    heads: tuple[Head, ...]
    ranking: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    unit: Unit = "head"
    ordered: bool = True

    def scores(self, layout: HeadLayout, model: str = "one") -> HeadScores:
        """The list as scores of a model with this layout; refuses heads that it does not have."""
        values = np.zeros(layout.total)
        try:
            numbers = [layout.number(head) for head in self.heads]
        except HeadcountError as error:
            named = f" ({self.parameters['model']})" if "model" in self.parameters else ""
            raise HeadcountError(
                f'The list "{self.ranking}" is for another model{named} than {model} with '
                f"{layout}: {error}"
            ) from error
        for place, number in enumerate(numbers):
            values[number] = 1 - place / len(self.heads) if self.ordered else 1
        facts = {"listed": len(self.heads), "ordered": self.ordered}
        return HeadScores(layout, values, self.ranking, {**self.parameters, **facts})


def is_list(name: str) -> bool:
    """Whether this names a file of scores or a shipped list, and no ranking."""
    return name.endswith((*JSON, *YAML, *TABLE)) or name.partition(":")[0] in SHIPPED


def list_name(path: str) -> str:
    """What tables call the list: the name of its file, or of the folder of a table of gates."""
    if path.partition(":")[0] in SHIPPED:
        return path
    stem = Path(path.removesuffix(".gz")).stem
    folder = Path(path).absolute().parent.name
    return folder if stem in TABLES and folder else stem.removeprefix("scores-")


def read_list(path: str | Path) -> HeadScores | HeadList:
    """Read scores or a list of heads in any of the formats, or a shipped list by its name.

    A shipped list may be followed by one of its classes, as in gpt2-ioi:name-movers.

    >>> read_list("gpt2-ioi").top(26)[:3], read_list("gpt2-ioi:name-movers").listed
    ([Head(layer=0, index=1), Head(layer=0, index=10), Head(layer=2, index=2)], 3)
    """
    name, _, of_class = str(path).partition(":")
    if name in SHIPPED:
        return _of_class(HeadScores.load(SHIPPED[name]), name, of_class)
    ending = str(path).lower()
    if ending.endswith(TABLE):
        return _read_table(Path(path))
    if ending.endswith(YAML):
        return _read_yaml(Path(path))
    data = read_json(path, "head scores")
    if isinstance(data, Mapping) and data.get("format") == HEAD_SET:
        chosen = HeadSet.load(path)
        found = HeadList(chosen.heads, list_name(str(path)), ordered=False)
        return found if chosen.layout is None else found.scores(chosen.layout)
    if isinstance(data, list) or (isinstance(data, dict) and data and all(map(_is_key, data))):
        return _of_keys(path, data.items() if isinstance(data, dict) else data)
    return HeadScores.load(path)


def write_retrieval_head(scores: HeadScores, path: str | Path) -> Path:
    """Write scores as the JSON that Retrieval_Head and HeadKV read: {"LAYER-HEAD": [scores]}.

    Each head has its scores by example, or its one score. Both tools read the first line only, and
    HeadKV takes the heads in this order.

    >>> scores = HeadScores(HeadLayout((1, 1)), np.array([0.5, 0.25]), "by hand")
    >>> write_retrieval_head(scores, getfixture("tmp_path") / "list.json").read_text()
    '{"0-0": [0.5], "1-0": [0.25]}\\n'
    """
    check_query_heads(scores.layout)
    samples = scores.values[None] if scores.samples is None else scores.samples
    rows = zip(scores.layout, samples.T.tolist(), strict=True)
    lists = {f"{head.layer}-{head.index}": [round(x, 6) for x in row] for head, row in rows}
    return write_file(path, json.dumps(lists) + "\n")


def check_query_heads(layout: HeadLayout) -> None:
    """Refuse scores that Retrieval_Head and HeadKV would take for those of other heads."""
    if layout.unit != "head":
        raise HeadcountError(
            "Retrieval_Head and HeadKV read scores of query heads, and these are of "
            f"{layout.word}s: rank query heads, or write them for DuoAttention."
        )


def same_name(one: str, other: str) -> bool:
    """Whether two names, hub ids or paths are of the same model.

    >>> same_name("meta-llama/Llama-3.1-8B-Instruct", "models/llama-3.1-8b-instruct/")
    True
    """
    first, second = (name.rstrip("/\\").replace("\\", "/").split("/")[-1] for name in (one, other))
    return first.lower() == second.lower()


def _of_class(scores: HeadScores, name: str, wanted: str) -> HeadScores:
    """A shipped list, or one of its classes."""
    about = {key: value for key, value in scores.parameters.items() if key != "classes"}
    classes = scores.parameters["classes"]
    if wanted and wanted not in classes:
        raise unknown(f"class of heads in {name}", wanted, classes)
    ranking = f"{name}:{wanted}" if wanted else name
    heads = HeadSet(classes[wanted] if wanted else [h for some in classes.values() for h in some])
    return HeadList(heads.heads, ranking, about, ordered=False).scores(scores.layout)


def _read_yaml(path: Path) -> HeadList:
    """A file of QRHead: attn_head_set holds LAYER-HEAD, best first, with commas between."""
    import yaml  # type: ignore[import-untyped]  # takes a while

    try:
        data = yaml.safe_load(_text(path))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _no_list(path, "it is no YAML") from error
    named = data.get("attn_head_set") if isinstance(data, dict) else data
    if named == "full_heads":
        raise _no_list(path, "it takes all heads (full_heads), and ranks none")
    if isinstance(named, str):
        named = named.replace(",", " ").split()
    if not isinstance(named, list) or not named:
        raise _no_list(path, "attn_head_set must be a list of LAYER-HEAD, such as 13-18")
    about = data if isinstance(data, dict) else {}
    model = about.get("model_name_or_path") or about.get("model_base_class")
    facts = {"format": "QRHead", **({"model": model} if isinstance(model, str) else {})}
    heads = _different(path, [_head(path, name) for name in named])
    return HeadList(heads, list_name(str(path)), facts)


def _read_table(path: Path) -> HeadScores:
    """A table of DuoAttention or RLKV: a row for each layer, a number for each key/value head."""
    try:
        rows = [list(map(float, line.split())) for line in _text(path).splitlines() if line.strip()]
    except ValueError as error:
        raise _no_list(path, "it must be a table of numbers, a row for each layer") from error
    values = [value for row in rows for value in row]
    if not rows or len({*map(len, rows)}) > 1 or not np.isfinite(values).all():
        raise _no_list(path, "each layer must have a finite number for each key/value head")
    facts: dict[str, Any] = {"format": "RLKV" if path.stem == TABLES[1] else "DuoAttention"}
    beside = path.with_name("config.json")
    about = read_json(beside, "a config of DuoAttention") if beside.exists() else {}
    if isinstance(about, dict):
        facts |= {"model": about["model_name"]} if isinstance(about.get("model_name"), str) else {}
        facts |= {key: about[key] for key in ("sink_size", "recent_size") if key in about}
    layout = HeadLayout(tuple(map(len, rows)), "kv")
    return HeadScores(layout, np.array(values), list_name(str(path)), facts)


def _of_keys(path: str | Path, entries: Iterable[Any]) -> HeadScores | HeadList:
    """LAYER-HEAD with a score, or the scores by example: of Retrieval_Head, HeadKV and QRHead.

    Without any scores, it is a list in the order of the file.
    """
    entries, scores = list(entries), dict[Head, list[float]]()
    bare = all(isinstance(entry, str) for entry in entries)
    for entry in entries:
        paired = isinstance(entry, list | tuple) and len(entry) == 2
        key, given = entry if paired else (entry, 0.0 if bare else None)
        head = _head(path, key)
        numbers: list[Any] = given if isinstance(given, list) else [given]
        if not numbers or not all(type(x) in (int, float) for x in numbers):
            raise _no_list(path, f"head {key} must have a number, or a list of numbers")
        if not np.isfinite(numbers).all():
            raise _no_list(path, f"head {key} has a score that is not finite")
        if head in scores:
            raise _no_list(path, f"it names head {key} twice")
        scores[head] = [float(x) for x in numbers]
    if not scores:
        raise _no_list(path, "it names no head")
    name, facts = list_name(str(path)), {"format": "LAYER-HEAD"}
    means = {head: float(np.mean(numbers)) for head, numbers in scores.items()}
    layout = _layout_of(scores)
    if layout is None or bare:
        return HeadList(tuple(sorted(scores, key=lambda head: -means[head])), name, facts)
    values = np.array([means[head] for head in layout])
    found = HeadScores(layout, values, name, facts)
    return replace(found, samples=_samples([scores[head] for head in layout]))


def _samples(rows: Sequence[Sequence[float]]) -> Float[np.ndarray, "samples heads"] | None:
    """The scores by example, if all heads have those of the same examples."""
    alike = len({*map(len, rows)}) == 1 and len(rows[0]) > 1
    return np.array(rows).T if alike else None


def _layout_of(heads: Iterable[Head]) -> HeadLayout | None:
    """The layout in which these are all heads; none if there are gaps."""
    counts: dict[int, int] = {}
    for head in sorted(heads):
        if head.index != counts.get(head.layer, 0) or head.layer > len(counts):
            return None
        counts[head.layer] = head.index + 1
    return HeadLayout(tuple(counts.values()))


def _is_key(key: Any) -> bool:
    return isinstance(key, str) and KEY.fullmatch(key.strip()) is not None


def _head(path: str | Path, key: Any) -> Head:
    match = KEY.fullmatch(key.strip()) if isinstance(key, str) else None
    if match is None:
        raise _no_list(path, f"{str(key)[:40]!r} is no LAYER-HEAD, such as 13-18")
    return Head(int(match[1]), int(match[2]))


def _different(path: Path, heads: Sequence[Head]) -> tuple[Head, ...]:
    if len({*heads}) < len(heads):
        raise _no_list(path, "it names a head twice")
    return tuple(heads)


def _text(path: Path) -> str:
    try:
        return read_limited(checked_path(path)).decode("utf-8")
    except OSError as error:
        raise HeadcountError(f"Cannot read {WHAT} from {path}: {error.strerror}.") from error
    except ValueError as error:
        raise _no_list(path, "it is no text") from error


def _no_list(path: str | Path, reason: str) -> HeadcountError:
    return HeadcountError(f"{path} is not {WHAT}: {reason}.")


def listed_counts(scores: HeadScores, counts: Sequence[int]) -> list[int]:
    """Those of the numbers of heads that a list tells, and all that it names.

    >>> listed_counts(read_list("gpt2-ioi"), [0, 1, 2, 4])
    [0, 26]
    """
    listed = scores.listed
    if listed == scores.layout.total:
        return [*counts]
    return sorted({0, listed, *(n for n in counts if n < listed and scores.ordered)})


def check_listed(scores: HeadScores, counts: Iterable[int], series: Iterable[str] = ()) -> None:
    """Refuse numbers of heads that a list does not tell: more than it names, or some of no order.

    >>> check_listed(read_list("gpt2-ioi"), [0, 26])
    """
    listed, total = scores.listed, scores.layout.total
    if listed == total:
        return
    what = f'The list "{scores.ranking}" names {counted(listed, "head")}'
    if "bottom" in series:
        raise HeadcountError(f"{what} and does not rank the others: leave the series bottom out.")
    for count in counts:
        if count not in (0, total) and (count > listed or (not scores.ordered and count < listed)):
            if scores.ordered:
                raise HeadcountError(f"{what}: ask for 0 to {listed} of them, not {count}.")
            raise HeadcountError(f"{what} in no order: ask for all {listed} of them, not {count}.")
