"""The page as text: whole, escaped, and nothing in it that is loaded from outside."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape
from report.page_samples import NASTY, attribution, write_sample

from headcount import HeadcountError
from headcount.cli import main
from headcount.cli.arguments import build_parser
from headcount.report import find_results, page, read_result, write_page
from headcount.report.head_rows import head_data, top_heads
from headcount.report.page_texts import next_commands
from headcount.studies import STUDIES

UNJUDGED = ("not comparable", "not tested")
RESULTS = Path(__file__).parents[2] / "docs" / "results"


class Page(HTMLParser):
    """Tags, ids, links and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.handlers: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")
            if name in ("src", "srcset", "data", "poster", "action"):
                self.sources.append(value or "")
            if name.startswith("on") or name == "style":
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def one(tmp_path: Path, **options: str) -> tuple[str, Page]:
    folder = write_sample(tmp_path / "one", **options)
    text = write_page([folder], folder / "report.html").read_text(encoding="utf-8")
    return text, Page(text)


def test_nothing_is_loaded_from_outside(tmp_path: Path) -> None:
    text, parsed = one(tmp_path)
    assert parsed.sources
    assert all(source.startswith("data:image/") for source in parsed.sources)
    assert "link" not in parsed.tags
    assert parsed.handlers == []
    assert parsed.links
    assert all(link[1:] in parsed.ids for link in parsed.links)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|innerHTML|eval\(", text)


def test_the_policy_allows_this_style_and_script_and_nothing_else(tmp_path: Path) -> None:
    text, _ = one(tmp_path)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    for tag in ("style", "script"):
        content = re.search(f"<{tag}>(.*?)</{tag}>", text, re.S)
        assert content
        digest = base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]


def test_what_comes_from_models_and_users_is_escaped(tmp_path: Path) -> None:
    text, parsed = one(tmp_path, model=NASTY)
    assert "<img src=x" not in text
    assert parsed.tags.count("img") == 1
    assert parsed.tags.count("script") == 2  # the data and the code
    said = "".join(parsed.words)
    assert f"A note on {NASTY}" in said
    assert f"names are shown as they are: {NASTY}" in said
    assert f"headcount run masked-heads --model {NASTY!r}" in said


def test_claims_stand_beside_what_was_published(tmp_path: Path) -> None:
    text, _ = one(tmp_path)
    row = re.search(r"<tr><td[^>]*>the top heads matter more</td>.*?</tr>", text)
    assert row
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td.*?</td>", row[0])]
    assert cells == [
        "the top heads matter more", "they do", "−0.250", "−0.300 to −0.200", "✓ supported",
    ]  # fmt: skip
    unknown = re.search(r"<tr><td[^>]*>names are shown.*?</tr>", text)
    assert unknown
    assert ">unknown<" in unknown[0]
    assert "✓</span> 1 supported" in text


def test_the_heads_are_there_with_every_score(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "one")
    (model,) = head_data([read_result(folder)], ["masked-heads"])
    assert (model["name"], model["counts"]) == ("tiny", (4, 4, 3))
    ioi, syntax = model["groups"]
    assert [score["name"] for score in ioi["scores"]] == [
        "attribution", "patching", "effect when removed",
    ]  # fmt: skip
    best, patched, removed = ioi["scores"]
    assert best["values"][6] == 0.9
    low, high = attribution().intervals()[6]
    assert (best["low"][6], best["high"][6]) == pytest.approx((low, high), rel=1e-3)
    assert low < 0.89 < 0.91 < high  # of two samples, the interval is wider than between them
    assert removed["values"][3] == -patched["values"][3] == -2.5
    assert removed["note"] == "logit_difference, ablation corrupted"
    assert "low" not in removed
    role = syntax["scores"][0]
    assert role["labels"][6] == "facilitation"
    assert role["labels"][8] == "interference"
    assert top_heads(read_result(folder), 2) == ("tiny", "ioi", ["1.2", "1.0"])


def test_several_results_share_one_page(tmp_path: Path) -> None:
    folders = [
        write_sample(tmp_path / "a", "masked-heads"),
        write_sample(tmp_path / "b", "heads-kept"),
        write_sample(tmp_path / "c", "heads-kept"),
        write_sample(tmp_path / "d", "heads"),  # a study that is called as a part of the page is
    ]
    failures = {"head-roles": f"There is {NASTY}."}
    text = write_page(folders, tmp_path / "index.html", failures=failures).read_text()
    parsed = Page(text)
    wanted = {"masked-heads", "heads-kept", "heads-kept-2", "heads-2", "heads", "go-on"}
    assert wanted <= set(parsed.ids)
    assert len(parsed.ids) == len(set(parsed.ids))
    said = "".join(parsed.words)
    assert failures["head-roles"] in said
    assert "Not finished" in said
    assert "a/figure.png" in said
    data = json.loads(re.search(r'id="head-data">(.*?)</script>', text)[1])  # type: ignore[index]
    (model,) = data  # one model, so one map
    assert len(model["groups"]) == 8


def test_the_page_is_the_same_twice_and_ends_what_it_starts(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "one")
    first = write_page([folder], tmp_path / "1.html").read_bytes()
    assert first == write_page([folder], tmp_path / "2.html").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.html", "2.html", "one"]


@pytest.mark.parametrize("study", ["masked-heads", "curve"])
def test_every_command_to_go_on_with_is_one(tmp_path: Path, study: str) -> None:
    found = next_commands(read_result(write_sample(tmp_path / "one", study, model="a b")))
    assert {shlex.split(command)[1] for _, command in found} >= {"ablate", "export", "generate"}
    for _, command in found:
        words = shlex.split(command)
        assert words[0] == "headcount"
        build_parser(words[1:]).parse_args(words[1:])
        if words[1] in ("ablate", "export"):
            assert words[words.index("--model") + 1] == "a b"
            assert words[words.index("--heads") + 1 :][:2] == ["1.2", "1.0"]


@pytest.mark.parametrize("folder", [path.parent for path in sorted(RESULTS.rglob("run.json"))])
def test_results_that_were_committed_can_be_shown(folder: Path) -> None:
    result = read_result(folder)
    text = page([result])
    assert len(text) < 3_000_000
    assert result.claims or result.study not in STUDIES
    assert result.figures
    shown = [name for name in result.figures if not name.endswith("-column")]
    assert text.count("<figure>") == len(shown)
    assert text.count(", and for a column ") == len(result.figures) - len(shown)
    for name in shown:
        assert escape(result.run["captions"][name]) in text
    assert "4-bit weights (Q4_" in text or "planted" in folder.name


def test_large_drawings_are_shown_as_pictures(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "one")
    (folder / "figure.png").write_bytes(b"\x89PNG")
    assert read_result(folder).figures["figure"][0] == "image/svg+xml"
    (folder / "figure.svg").write_text("<svg>" + " " * 500_000 + "</svg>")
    assert read_result(folder).figures["figure"] == ("image/png", b"\x89PNG")


def test_a_packed_table_is_read_as_the_table(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "one")
    heads, packed = folder / "heads.csv", folder / "heads.csv.gz"
    expected = read_result(folder).heads
    assert expected
    packed.write_bytes(gzip.compress(heads.read_bytes()))
    heads.unlink()
    assert read_result(folder).heads == expected
    for damaged in (b"no archive", packed.read_bytes()[:-9]):
        packed.write_bytes(damaged)
        with pytest.raises(HeadcountError, match=r"Cannot read .*heads\.csv\.gz"):
            read_result(folder)


def test_long_tables_say_where_the_rest_is(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "one")
    (folder / "curves.csv").write_text("count,value\n" + "1,0.5\n" * 700)
    text = write_page([folder], folder / "report.html").read_text()
    assert "curves.csv has all 700 rows; the first 600 are shown here." in text


def test_the_command_finds_results_below_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sample(tmp_path / "out" / "a")
    write_sample(tmp_path / "out" / "b", "heads-kept")
    path = tmp_path / "page" / "index.html"
    assert main(["report", str(tmp_path / "out"), "--out", str(path)]) == 0
    assert capsys.readouterr().out == f"2 results: {path}\n"
    assert main(["report", str(tmp_path / "out" / "a"), "--out", str(path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"page": str(path), "results": [str(tmp_path / "out" / "a")]}


@pytest.mark.parametrize("name", ["../secret.csv", "/etc/passwd", "..", "", "link.csv", "a/b.csv"])
@pytest.mark.parametrize("kind", ["tables", "figures"])
def test_no_name_in_a_folder_leads_out_of_it(tmp_path: Path, name: str, kind: str) -> None:
    folder = write_sample(tmp_path / "one")
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    (tmp_path / "secret.csv.png").write_bytes(b"\x89PNG")
    for link in ("link.csv", "link.csv.png"):
        (folder / link).symlink_to(tmp_path / "secret.csv")
    run = json.loads((folder / "run.json").read_text())
    run[kind] = {"S": name} if kind == "tables" else [name]
    (folder / "run.json").write_text(json.dumps(run))
    if kind == "figures" and name in ("", ".."):  # .png and ...png are names like any other
        assert read_result(folder).figures == {}
        return
    with pytest.raises(HeadcountError, match="not a file inside it"):
        read_result(folder)


def test_files_that_are_links_to_elsewhere_are_refused(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "one")
    (folder / "curves.csv").rename(tmp_path / "curves.csv")
    (folder / "curves.csv").symlink_to(tmp_path / "curves.csv")
    with pytest.raises(HeadcountError, match="not a file inside it"):
        write_page([folder], folder / "report.html")


def test_a_link_in_the_page_s_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "one")
    (tmp_path / "mine").write_text("precious")
    for name in ("report.html", ".report.html.new"):
        (folder / name).symlink_to(tmp_path / "mine")
    write_page([folder], folder / "report.html")
    assert (tmp_path / "mine").read_text() == "precious"
    assert not (folder / "report.html").is_symlink()


def test_verdicts_that_no_interval_gives_come_with_their_reason(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "one")
    claims = [{"claim": "c", "verdict": word, "reason": f"{NASTY} {word}"} for word in UNJUDGED]
    (folder / "claims.json").write_text(json.dumps(claims))
    said = "".join(Page(page([read_result(folder)])).words)
    for word in UNJUDGED:
        assert f"{NASTY} {word}" in said
        assert f"1 {word}" in said


def test_folders_without_a_result_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="There is no result in"):
        find_results(tmp_path)
    with pytest.raises(HeadcountError, match="There is no result in"):
        read_result(tmp_path)
    other = '{"study": "s", "versions": {}, "model": []}'
    for text, words in (
        *(
            ("{", "Cannot read"),
            ("[]", "not written by headcount"),
            ("{}", "not written by headcount"),
        ),
        (other, "not written by headcount"),
    ):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(HeadcountError, match=words):
            read_result(tmp_path)
    (tmp_path / "run.json").write_text('{"study": "s", "versions": {}}')
    (tmp_path / "claims.json").write_text("[1]")
    with pytest.raises(HeadcountError, match="not a list of claims"):
        read_result(tmp_path)


def changed_run(**entries: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        run = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(run | entries))

    return change


def written(name: str, content: str | bytes) -> Callable[[Path], object]:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def piped(name: str) -> Callable[[Path], object]:
    """Put a pipe, which nobody writes to, in place of a file."""

    def change(folder: Path) -> None:
        for path in (folder / name, (folder / name).with_suffix(".svg")):
            path.unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return change


def first_head(old: str, new: str) -> Callable[[Path], object]:
    """Change the first row of heads.csv, which is about head 0.0."""

    def change(folder: Path) -> None:
        header, row, *rest = (folder / "heads.csv").read_text().splitlines()
        assert old in row
        (folder / "heads.csv").write_text("\n".join([header, row.replace(old, new, 1), *rest]))

    return change


NESTED = "[" * 100_000
HEAD = ",0,0,attribution,"
MALFORMED = [
    *(changed_run(model=wrong) for wrong in (None, [], "tiny", 3)),
    *(changed_run(model={"tiny": wrong}) for wrong in (None, [], "x", {"heads": "abc"})),
    *(changed_run(model={"tiny": {"heads": heads}}) for heads in ({}, ["4"], [None], 3)),
    *(changed_run(**{name: None}) for name in ("study", "title", "command", "settings", "tables")),
    *(changed_run(**{name: "x"}) for name in ("notes", "figures", "versions", "settings")),
    *(changed_run(tables={"S": name}) for name in (3, None, ["a.csv"], "..")),
    changed_run(figures=["a\0b"]),
    *(written("claims.json", text) for text in ("{}", "null", "3", "[{}]", "[[]]", "[null]")),
    *(written("claims.json", text) for text in ('[{"claim": 3, "verdict": "x"}]', "[", NESTED)),
    *(written("run.json", text) for text in ("null", "[]", "", NESTED, b"\xff\xfe", "9" * 5000)),
    *(written("heads.csv", text) for text in ("a,b\n1,2\n", "layer\n1000000000\n", b"\xff\xff")),
    written("heads.csv", ",".join(["x"] * 3) + "\n1,2,3,4\n"),
    written("curves.csv", b"a,b\n\xff,1\n"),
    written("curves.csv", "a\n" + "x" * 11_000_000),
    written("agreed.csv.gz", b"no archive"),
    written("agreed.csv.gz", gzip.compress(bytes(200_000_000))),
    written("curves.csv", ",".join(map(str, range(10_001))) + "\n" + "1\n" * 1_000),
    *map(piped, ("heads.csv", "curves.csv", "agreed.csv.gz", "claims.json", "run.json")),
    *map(piped, ("figure.svg", "figure.png")),
    *(first_head(HEAD, f",{n},0,attribution,") for n in (10**9, 10**30, -1, "", "x", "1.5", 5)),
    *(first_head(HEAD, f",0,{n},attribution,") for n in (10**9, 10**30, -1, "", "x", 5)),
]


@pytest.mark.parametrize("change", MALFORMED)
def test_malformed_folders_get_one_sentence(
    tmp_path: Path, change: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_sample(tmp_path / "one")
    (folder / "agreed.csv").rename(folder / "agreed.csv.gz")  # one table that may be packed
    (folder / "agreed.csv.gz").write_bytes(gzip.compress((folder / "agreed.csv.gz").read_bytes()))
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0
    change(folder)
    capsys.readouterr()
    assert main(["report", str(folder), "--out", str(tmp_path / "new.html")]) == 2
    told = capsys.readouterr().err
    assert told.startswith("headcount: ")
    assert told.count("\n") == 1
    assert not re.search(r"Expecting|set_int_max|codec|char \d|b'", told)
    assert not (tmp_path / "new.html").exists()


@pytest.mark.parametrize(
    "change",
    [
        written("claims.json", json.dumps([{"claim": "c", "verdict": "?", "measured": 10**400}])),
        written("claims.json", '[{"claim": "c", "verdict": "x", "low": [], "measured": {}}]'),
        changed_run(notes=[None, {}, 3], settings={"a": [[], {}], "b": None}),
        changed_run(command="'not closed", model={}),
        lambda folder: (folder / "heads.csv").unlink(),
    ],
)
def test_odd_folders_are_shown(tmp_path: Path, change: Callable[[Path], object]) -> None:
    folder = write_sample(tmp_path / "one")
    change(folder)
    assert "</html>" in page([read_result(folder)])


def test_settings_that_are_nested_too_deeply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deep(*_: object) -> None:
        raise RecursionError

    folder = write_sample(tmp_path / "one")
    monkeypatch.setattr(sys.modules["headcount.report.page"], "_flat", deep)
    with pytest.raises(HeadcountError, match="nested too deeply"):
        write_page([folder], folder / "report.html")
