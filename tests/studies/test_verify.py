"""`headcount verify`: a result follows from its own values, and what does not is named."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import curve, wrap
from headcount.cli import main
from headcount.report.curve_study import curve_study
from headcount.studies.verify import verify
from headcount.value_table import ValueTable

COMPARED = {"one": "top", "other": "random", "count": 2, "below": 9.0, "claim": "TopK is no better"}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run."""
    folder = tmp_path_factory.mktemp("fresh") / "curve"
    model, task = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny"), toy_task(24)
    found = curve(
        model,
        task,
        ranking="ablation",
        metric="logprob",
        counts=[0, 1, 2, 4],
        series=["top", "random"],
        seeds=3,
    )
    study = curve_study(found, model, task, {"seeds": 3}, [COMPARED])
    study.save(folder)
    assert study.claims[0].verdict == "not comparable"  # a random model is at chance
    return folder


@pytest.fixture
def folder(fresh: Path, tmp_path: Path) -> Path:
    """A copy of it to be altered."""
    return Path(shutil.copytree(fresh, tmp_path / "result"))


def altered(path: Path, change: Callable[[str], str]) -> None:
    data = path.read_bytes()
    packed = path.suffix == ".gz"
    text = (gzip.decompress(data) if packed else data).decode()
    changed = change(text)
    assert changed != text
    path.write_bytes(gzip.compress(changed.encode()) if packed else changed.encode())


def in_json(**changes: Any) -> Callable[[str], str]:
    """Set entries of run.json: settings__seeds=4 is seeds of settings."""

    def change(text: str) -> str:
        document = json.loads(text)
        for names, value in changes.items():
            *above, last = names.split("__")
            place = document
            for name in above:
                place = place[name]
            place[last] = value
        return json.dumps(document)

    return change


def without_line(number: int) -> Callable[[str], str]:
    def change(text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join(lines[:number] + lines[number + 1 :])

    return change


def swapped(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


def last_value(new: str) -> Callable[[str], str]:
    """Another value of the last example under the last head set."""
    return lambda text: text.rstrip("\n").rpartition(" ")[0] + f" {new}\n"


def without_claims(_: str) -> str:
    return "[]"


def test_a_fresh_result_agrees(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(fresh)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "1 claim recomputed from the values of single examples; all agree." in out
    found = verify(fresh)
    rows = len((fresh / "curves.csv").read_text().splitlines()) - 1
    # value, low, high, n, draws, unmatched and count of each point, and five numbers of the claim
    assert (found.numbers, found.claims) == (7 * rows + 5, 1)
    assert found.differences == found.left_out == ()


ALTERED = {
    "a value": ("values.csv.gz", last_value("99"), "curves.csv, row 8, value: "),
    "a value that is no number": ("values.csv.gz", last_value("x"), "a value is not a number"),
    "a value that is NaN": ("values.csv.gz", last_value("nan"), "not numbers (NaN)"),
    "a value too many": ("values.csv.gz", last_value("1 2"), "9 values for 8 examples"),
    "an example too few": ("examples.csv.gz", without_line(3), "8 values for 7 examples"),
    "a draw too few": ("values.csv.gz", without_line(8), "run.json says 3 draws, and"),
    "a head set": ("values.csv.gz", without_line(4), "has 8 rows, and the values 7."),
    "a column": ("values.csv.gz", swapped(",count,", ",number,"), "lacks one of the columns"),
    "a point": ("curves.csv", without_line(2), "curves.csv has 7 rows, and the values 8."),
    "the number of examples": ("curves.csv", swapped(",8,1,", ",9,1,"), "curves.csv, row 1, n: 9"),
    "a verdict": (
        "claims.json",
        swapped('"not comparable"', '"supported"'),
        "claims.json, claim 1, verdict: 'supported' there, 'not comparable' from the values.",
    ),
    "the words of a claim": ("claims.json", swapped("no better", "Better"), "claim 1, claim"),
    "no claims": ("claims.json", without_claims, "claims.json has 0 claims, and the values 1."),
    "settings, seeds": ("run.json", in_json(settings__seeds=4), "run.json says 4 draws"),
    "settings, counts": (
        "run.json",
        in_json(settings__counts=[0, 1, 2, 3]),
        "run.json has the counts 0, 1, 2, 3, and values.csv.gz 0, 1, 2, 4.",
    ),
    "settings, a count that is no number": (
        "run.json",
        in_json(settings__counts=[0, 1, "2", 4]),
        "run.json has the counts 0, 1, 2, 4, and",
    ),
    "the model": ("run.json", in_json(model={"another": {}}), "run.json has the models another"),
    "a fact": ("run.json", in_json(facts__comparisons=[]), "has 1 claims, and the values 0"),
    "a fact that the values lack": (
        "run.json",
        in_json(facts__comparisons=[{**COMPARED, "count": 3}]),
        "run.json names facts that the values do not have",
    ),
}


@pytest.mark.parametrize("what", ALTERED)
def test_the_first_thing_that_does_not_fit_is_named(
    what: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, change, words = ALTERED[what]
    altered(folder / name, change)
    assert main(["verify", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    first, second, *_ = out.rstrip("\n").split("\n")
    assert first.startswith(f"{folder} does not fit together, ")
    assert words in second


def test_settings_that_only_a_new_run_could_confirm_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    altered(folder / "run.json", in_json(settings__epsilon=0.5, settings__scope="all"))
    assert main(["verify", str(folder)]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("Settings that the values cannot confirm: ")
    assert {"epsilon", "scope"} <= {*last.rpartition(": ")[2].rstrip(".").split(", ")}
    altered(folder / "run.json", in_json(settings__threshold=0.5, facts__threshold=0.9))
    (told,) = verify(folder).differences
    assert "threshold=0.5 in its settings, and 0.9 in the facts" in told
    assert "threshold" not in verify(folder).unchecked


def test_rounding_in_another_order_is_no_difference(folder: Path) -> None:
    altered(folder / "curves.csv", lambda text: _nudged(text, 1e-9))
    assert verify(folder).differences == ()
    altered(folder / "curves.csv", lambda text: _nudged(text, 1e-3))
    assert len(verify(folder).differences) == 8


def _nudged(text: str, by: float) -> str:
    header, *lines = text.splitlines()
    place = header.split(",").index("value")
    cells = [line.split(",") for line in lines]
    for row in cells:
        row[place] = repr(float(row[place]) * (1 + by) + by)
    return "\n".join([header, *(",".join(row) for row in cells)]) + "\n"


def test_templates_decide_intervals_so_they_are_part_of_what_fits(folder: Path) -> None:
    """Five templates, instead of three, which are held fixed."""
    table = ValueTable.read(folder)
    (facts, *_) = table.facts()
    numbers = (0, 0, 1, 1, 2, 2, 3, 4)
    old = table.examples(**facts)
    names = [(one, f"t{n}", content) for n, (one, _, content) in zip(numbers, old, strict=True)]
    table.name_examples(names, **facts)
    table.write(folder)
    assert any(", low: " in difference for difference in verify(folder).differences)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "values.csv.gz").unlink(), "has no values.csv.gz"),
        (lambda folder: damage(folder / "values.csv.gz"), "values.csv.gz: it is damaged"),
        (lambda folder: (folder / "examples.csv.gz").write_bytes(b"x"), "it is damaged"),
        (lambda folder: (folder / "run.json").write_text("{"), "it is not JSON"),
        (lambda folder: (folder / "run.json").unlink(), "There is no result in"),
        (
            lambda folder: altered(folder / "run.json", in_json(facts={})),
            "was written before results kept what their estimates are made from",
        ),
        (
            lambda folder: altered(folder / "run.json", in_json(study="mine")),
            'The study "mine" has no estimates that can be made again',
        ),
    ],
)
def test_what_cannot_be_read_is_bad_input(
    spoil: Callable[[Path], object],
    words: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(folder)
    assert main(["verify", str(folder)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_all_results_below_a_folder_are_verified(
    fresh: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        shutil.copytree(fresh, tmp_path / name)
    assert main(["verify", str(tmp_path), str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out.count("all agree") == 3  # each once
    altered(tmp_path / "b" / "claims.json", swapped('"not comparable"', '"supported"'))
    assert main(["verify", str(tmp_path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [len(one["differences"]) for one in found] == [0, 1, 0]
    assert [Path(one["folder"]).name for one in found] == ["a", "b", "c"]
