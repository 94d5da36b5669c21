"""Packages that bring tasks, rankings, metrics and studies: installed by pip, used, and removed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from registries import forget_new_names
from tasks.tiny_tokenizers import byte_level
from tiny import tiny_model

import headcount
from headcount import HeadcountError, registry
from headcount.cli import main
from headcount.metrics import get_metric
from headcount.rankings import RANKINGS
from headcount.studies import study_kind
from headcount.tasks import TASKS, make_task

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("opposites", "loudness", "reciprocal_rank", "best-and-worst")

# The package of the documentation: its pyproject.toml, and all examples in one module.


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an empty environment, which finds the packages of this one by PYTHONPATH."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("my-heads")
    page = (DOCS / "extending.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (folder / "pyproject.toml").write_text(snippet)
    examples = sorted((DOCS / "examples").glob("add_*.py"))
    (folder / "my_heads.py").write_text("\n\n".join(path.read_text() for path in examples))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("writer") / "tiny"
    tiny_model("llama", vocab_size=2000, max_position_embeddings=256).save_pretrained(folder)
    byte_level().save_pretrained(folder)
    return str(folder)


def outside(
    python: Path | str, folder: Path, *words: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a Python module in a process of its own, which must end with this exit code."""
    paths = [Path(headcount.__path__[0]).parent, sysconfig.get_path("purelib"), folder / "site"]
    here = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "HEADCOUNT_CACHE": str(folder / "c")}
    done = subprocess.run(
        [str(python), "-m", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **here, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_an_installed_package_brings_its_names_until_it_is_removed(
    environment: Path, package: Path, model: str, tmp_path: Path
) -> None:
    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return outside(environment, tmp_path, *words, code=code)

    run("pip", "install", "--no-deps", "--no-build-isolation", str(package))
    listed = run("headcount.cli", "list")
    assert all(re.search(rf"^  {name} ", listed.stdout, re.MULTILINE) for name in NAMES)
    assert listed.stderr == ""

    chosen = ["--task", "opposites", "--ranking", "loudness", "--metric", "reciprocal_rank"]
    few = ["--counts", "0", "2", "--seeds", "1", "--quiet", "--out", "curve"]
    run("headcount.cli", "curve", "--model", model, *chosen, *few)
    settings = json.loads((tmp_path / "curve" / "run.json").read_text())
    assert "opposites" in json.dumps(settings)
    assert "reciprocal_rank" in (tmp_path / "curve" / "curves.csv").read_text()

    help_text = run("headcount.cli", "run", "best-and-worst", "--help").stdout
    assert "--count N" in help_text
    assert "heads that are masked (8)" in help_text
    assert "quick, full; presets may set" in " ".join(help_text.split())
    assert "headcount run best-and-worst\n" in help_text  # the example
    assert "best-and-worst" in run("headcount.cli", "run", "--help").stdout
    options = ["--task", "opposites", "--n", "12", "--count", "2", "--quiet", "--out", "study"]
    done = run("headcount.cli", "run", "best-and-worst", "--model", model, *options)
    assert "the best hurt more" in done.stdout
    assert json.loads((tmp_path / "study" / "run.json").read_text())["settings"]["count"] == 2

    run("pip", "uninstall", "--yes", "my-heads")
    listed = run("headcount.cli", "list")
    assert not any(name in listed.stdout for name in NAMES)
    refused = run("headcount.cli", "run", "best-and-worst", code=2)
    assert refused.stderr.startswith('headcount: There is no study "best-and-worst"')


# Plug-ins on the path of this process


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Put a module and the metadata of its package on the path, as pip would."""
    forget_new_names(monkeypatch)
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def forget() -> None:
        for module in [name for name in sys.modules if name.startswith("plug_")]:
            del sys.modules[module]
        registry.load_plugins.cache_clear()
        registry.warn_of_plugins.cache_clear()

    def install(name: str, source: str, value: str = "") -> None:
        metadata = site / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (site / f"plug_{name}.py").write_text(f"import headcount\n{source}\n")
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = f"[headcount]\npoint-{name} = {value or f'plug_{name}'}\n"
        (metadata / "entry_points.txt").write_text(lines)

    forget()
    yield install
    forget()


TASK = """
@headcount.task("{0}", "Good")
def make(tokenizer):
    return {1}
"""
STUDY = """
from dataclasses import dataclass, field
from headcount.registry import setting

@dataclass(frozen=True)
class Config:
    {1}

@headcount.study("{0}", "100 % mine", config=Config)
def describe(models, config):
    return [config]
"""


@pytest.mark.parametrize(
    ("source", "value", "reason"),
    [
        ("import nothing_of_this_name", "", "ModuleNotFoundError: No module named 'nothing_of_t"),
        ("1 / 0", "", "ZeroDivisionError: division by zero"),
        ("raise SystemExit('bye')", "", "SystemExit: bye"),
        ("raise ValueError", "", "ValueError"),
        ("", "plug_elsewhere", "ModuleNotFoundError: No module named 'plug_elsewhere'"),
        ("", "plug_bad:thing", "its entry point names an object where a module is needed"),
        (TASK.format("ioi", 0), "", 'There is already the task "ioi", of headcount.tasks.'),
        (TASK.format("good", 0), "", 'There is already the task "good", of plug_abc.make: choose'),
        ("headcount.ranking('attribution', 'A')(dict)", "", "of headcount.rankings.attribution."),
        ("headcount.metric('accuracy', 'A')(dict)", "", 'the metric "accuracy", of headcount: c'),
        (STUDY.format("heads-kept", "n: int = 1"), "", 'the study "heads-kept", of headcount: c'),
        ("headcount.task('Bad Name', 'A')(dict)", "", "A task cannot have the name 'Bad Name'"),
        ("headcount.task('bad', 'A')(3)", "", 'Decorate a function for the task "bad", not 3'),
        ("@headcount.task\ndef bad(): pass", "", "TypeError: task() missing 1 required positional"),
        (STUDY.format("bad", "n: int"), "", 'field "n" in the config of the study "bad" has no'),
        ("headcount.study('bad', 'B', config=3)(dict)", "", 'The config of the study "bad" is 3'),
    ],
)
def test_a_plug_in_that_fails_is_named_with_its_reason(
    plug_in: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    source: str,
    value: str,
    reason: str,
) -> None:
    plug_in("abc", TASK.format("good", "headcount.Task('good', 1, ())"))
    plug_in("bad", source, value)
    sentence = re.compile(
        r'The plug-in "point-bad" of the package bad cannot be used, because importing '
        rf"{re.escape(value or 'plug_bad')} failed \(.*{re.escape(reason)}.*\): correct it, or "
        r"remove it \(pip uninstall bad\)\.$"
    )
    # Where the name that is asked for may be that of the plug-in, the sentence is the error's.
    with pytest.raises(HeadcountError, match=r'no task "goood".* mean "good"') as caught:
        TASKS["goood"]
    assert sentence.search(str(caught.value))
    assert main(["curve", "--task", "nothing-like-it"]) == 2
    assert sentence.search(capsys.readouterr().err.strip())
    # Otherwise it is a warning, once.
    for _ in range(2):
        assert main(["list"]) == 0
        assert "\n  good " in capsys.readouterr().out
    (record,) = caplog.records
    assert sentence.search(record.getMessage())


def test_a_warning_is_one_line_on_stderr(plug_in: Callable[..., None], tmp_path: Path) -> None:
    plug_in("bad", "raise ValueError('no way')")
    done = outside(sys.executable, tmp_path, "headcount.cli", "list")
    assert done.stderr.startswith('headcount: warning: The plug-in "point-bad" of the package bad')
    assert done.stderr.count("\n") == 1
    done = outside(sys.executable, tmp_path, "headcount.cli", "rank", "--task", "mine", code=2)
    assert done.stderr.startswith('headcount: There is no task "mine"')
    assert done.stderr.count("point-bad") == done.stderr.count("\n") == 1
    assert outside(sys.executable, tmp_path, "headcount.cli", "--help").stderr == ""


def test_commands_that_need_no_plug_in_import_none(
    plug_in: Callable[..., None], capsys: pytest.CaptureFixture[str], model: str
) -> None:
    plug_in("bad", "raise ValueError")
    for words in (["--help"], ["run", "masked-heads", "--help"], ["curve", "--help"]):
        with pytest.raises(SystemExit, match="0"):
            main(words)
    few = ["--counts", "0", "2", "--seeds", "1", "--quiet"]
    own = ["--metric", "logprob", "--ranking", "random", "--set", "n=8"]
    assert main(["curve", "--model", model, "--task", "ioi", *own, *few]) == 0
    assert capsys.readouterr().err == ""
    assert "plug_bad" not in sys.modules
    assert registry.load_plugins.cache_info().currsize == 0


def test_a_found_name_warns_of_another_plug_in_that_fails(
    plug_in: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    plug_in("abc", TASK.format("good", "headcount.Task('good', 1, ())"))
    plug_in("bad", "raise ValueError")
    assert TASKS["good"].name == "Good"
    (record,) = caplog.records
    assert 'The plug-in "point-bad" of the package bad' in record.getMessage()


def test_what_a_plug_in_returns_is_checked(plug_in: Callable[..., None]) -> None:
    plug_in("abc", TASK.format("a-list", "[]") + STUDY.format("a-study", "n: int = 1"))
    with pytest.raises(HeadcountError, match='the task "a-list" returned list: let it return Task'):
        make_task("a-list", byte_level())
    with pytest.raises(HeadcountError, match='"a-study" returned list: let it return Description'):
        study_kind("a-study").describe([], None)


def test_a_ranking_that_returns_no_scores_is_refused(
    plug_in: Callable[..., None], model: str
) -> None:
    plug_in("abc", "headcount.ranking('zero', 'Zero')(lambda model, task: 0)")
    loaded = headcount.load_model(model)
    task = make_task("ioi", loaded.tokenizer, n=8)
    with pytest.raises(HeadcountError, match='"zero" returned int: let it return HeadScores'):
        headcount.rank(loaded, task, "zero", lab=headcount.Lab())


def test_a_metric_of_texts(plug_in: Callable[..., None]) -> None:
    plug_in(
        "abc", "headcount.metric('length', 'Length', text=True, binary=True)(lambda written: 0)"
    )
    metric: Any = get_metric("length")
    assert (type(metric).__name__, metric.name, metric.binary) == ("TextMetric", "Length", True)
    assert "length" not in RANKINGS


OWN = """
    fine: bool = setting(False, "whether it is fine")
    share: float = setting(0.5, "a share of 100 %")
    tasks: tuple[str, ...] = setting(("ioi",), "several")
    hidden: int = 3
"""


def test_options_come_from_the_config(
    plug_in: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    plug_in("abc", STUDY.format("a-study", OWN.strip()))
    with pytest.raises(SystemExit, match="0"):
        main(["run", "a-study", "--help"])
    text = capsys.readouterr().out
    assert "100 % mine." in text
    assert "--fine " in text
    assert "--tasks NAME [NAME ...]" in text
    assert "a share of 100 % (0.5)" in text
    assert main(["run", "a-study", "--set", "hiden=4"]) == 2
    assert 'a-study has no setting "hiden"' in capsys.readouterr().err


@pytest.mark.parametrize("name", ["model", "out", "quiet", "json", "study", "command"])
def test_a_setting_with_the_name_of_an_option_is_refused(
    plug_in: Callable[..., None], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    plug_in("abc", STUDY.format("a-study", f'{name}: str = setting("", "a text")'))
    assert main(["run", "a-study", "--help"]) == 2
    words = rf'The study "a-study" cannot have the setting (--)?{name}, .*: rename that field'
    assert re.search(words, capsys.readouterr().err)
