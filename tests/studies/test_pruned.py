"""The study `pruned`: on a planted model whose needed heads all share one group in each layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import plant
from sparse.corpus import tiny, write_text
from studies.test_heads_kept import write
from toy import toy_task

from headcount import HeadcountError, HeadLayout, HeadScores, Lab, Store, evaluate, load_model
from headcount.cli import main
from headcount.curves.healed import PrunedShape
from headcount.curves.pruned import PrunedHeads, Pruning
from headcount.curves.texts import TextRequest, spread
from headcount.models.groups import Geometry
from headcount.models.prune import write_pruned
from headcount.report.study import Study
from headcount.sparse.train import Run
from headcount.studies.pruned.study import KIND, PrunedStudy, healing
from headcount.studies.verify import verify

NEEDED = ("0.0", "1.2", "2.1")  # in groups 0, 1 and 0
FEW: dict[str, Any] = {"block": 16, "fitted": 6, "tested": 8, "rounds": 2, "draws": 3}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))


def lab() -> Lab:
    return Lab(store=None, progress=False)


def scores(model: Any) -> HeadScores:
    values = model.layout.gates(keep=NEEDED).astype(np.float64)
    return HeadScores(model.layout, values, "by-hand")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The planted model, pruned by scores that name the needed heads."""
    folder = tmp_path_factory.mktemp("planted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADCOUNT_CACHE", str(folder / "cache"))
        planted = plant(NEEDED, n=96)
        given = scores(planted.model)
        given.save(folder / "scores.json")
        file = write(planted.task, folder / "planted.jsonl")
        config = KIND.configure(tasks=(file,), ranking=str(folder / "scores.json"), n=48, **FEW)
        return KIND.describe([planted.model], config).carry_out(lab())


def point(study: Study, task: str, *heads: Any) -> dict[str, Any]:
    wanted = {"task": task, **vars(PrunedHeads(*heads))}
    (row,) = (row for row in study.rows if wanted.items() <= row.items())
    return dict(row)


def test_the_best_group_keeps_the_task_and_random_ones_do_not(study: Study) -> None:
    mean = "mean over tasks"
    assert point(study, mean)["value"] == 1
    assert point(study, mean, "best", "raw", "groups", 1)["value"] == 1
    assert point(study, mean, "random", "raw", "groups", 1)["value"] < 0.9
    assert point(study, mean, "best", "raw", "heads", 1)["value"] == 1
    claims = {claim.claim: claim for claim in study.claims}
    (kept,) = (c for words, c in claims.items() if "with 1 of 2 groups kept" in words)
    assert kept.measured == 0
    (row,) = (
        row
        for row in study.tables["Differences"]
        if (row["metric"], row["difference"]) == ("accuracy", "raw best minus raw random")
        and row["kept"] == "groups"
    )
    assert row["low together"] <= row["low"] < row["value"] < row["high"] <= 1


def test_sizes(study: Study) -> None:
    groups, heads = study.tables["Sizes"]
    assert (groups["kept"], groups["count"], groups["cache_bytes share"]) == ("groups", 1, 0.5)
    assert (heads["kept"], heads["count"], heads["cache_bytes share"]) == ("heads", 1, 1)
    assert groups["parameters"] < heads["parameters"]
    assert groups["writing"] > 0


def test_the_result_can_be_verified(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path / "out")
    found = verify(tmp_path / "out")
    assert found.differences == ()
    assert found.left_out == ()
    assert found.claims == len(study.claims) == 14


def test_pruned_models_are_measured_as_the_written_ones(tmp_path: Path) -> None:
    """What the study measures by gates, and after healing, is what a user measures afterwards."""
    model, text = tiny(), write_text(tmp_path / "text.txt")
    file = write(toy_task(40, targets=(1,)), tmp_path / "toy.jsonl")
    config = KIND.configure(
        tasks=(file,),
        text=str(text),
        held_out=20,
        n=12,
        keep_groups=(1,),
        keep_heads_per_group=(),
        heal_steps=40,
        batch=8,
        rank=4,
        **FEW,
    )
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    with Store(tmp_path / "store.sqlite") as store:
        own = Lab(store, progress=False)
        made = PrunedStudy(model, config)
        study = KIND.describe([model], config).carry_out(own)
        chosen = made.pruning.result(own)
        shape = PrunedShape(made.pruning, Geometry(2, 1, 2))
        folder = tmp_path / "written"
        gates = shape.gates(chosen)
        for treatment, settings in (("rescaled", None), ("healed", healing(config))):
            module = shape.made(own, settings)
            changed = settings is not None
            write_pruned(model, module, gates, folder / treatment, changed=changed)
            written = load_model(folder / treatment, device="cpu")
            values = evaluate(written, chosen.text, [], metric="logprob_per_token", lab=lab())
            row = point(study, "text", "best", treatment, "groups", 1)
            assert -values.values.mean() == pytest.approx(row["value"], abs=2e-4)
    for name, value in model.module.state_dict().items():
        assert torch.equal(before[name], value)
    # Training on text of the same kind helps, whatever was cut away.
    healed = point(study, "text", "best", "healed", "groups", 1)["value"]
    assert healed < point(study, "text", "best", "rescaled", "groups", 1)["value"] - 0.02


class StoppedError(Exception):
    pass


def test_healing_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, text = tiny(), write_text(tmp_path / "text.txt")
    request = TextRequest(model, str(text), 16, 4, 4, 0, 20)
    ranking = HeadScores(model.layout, np.arange(8.0), "by hand")
    pruning = Pruning(model, [Geometry(2, 1, 2)], request, ranking)
    config = KIND.configure(heal_steps=12, batch=2, rank=2, block=16)
    settings = healing(config)
    assert settings is not None
    shape = PrunedShape(pruning, Geometry(2, 1, 2))

    def weights() -> dict[str, torch.Tensor]:
        return dict(shape.made(lab(), settings).state_dict())

    with monkeypatch.context() as patch:
        patch.setenv("HEADCOUNT_CACHE", str(tmp_path / "straight"))
        straight = weights()
    step = Run._train

    def stopping(run: Run, ids: torch.Tensor) -> torch.Tensor:
        if run.step == 7:
            run._save()
            raise StoppedError
        return step(run, ids)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_train", stopping)
        with pytest.raises(StoppedError):
            weights()
    again = weights()
    assert all(torch.equal(straight[name], value) for name, value in again.items())
    folders = list((tmp_path / "cache" / "healed").iterdir())
    assert [[path.name for path in folder.iterdir()] for folder in folders] == [
        ["adapters.safetensors"]
    ]
    with monkeypatch.context() as patch:  # a finished run is not repeated
        patch.setattr(Run, "_train", stopping)
        assert all(torch.equal(straight[name], value) for name, value in weights().items())


# Text


def test_the_parts_of_a_text_share_no_article(tmp_path: Path) -> None:
    request = TextRequest(tiny(), str(write_text(tmp_path / "t.txt")), 16, 5, 6, 0, 20)
    text = request.result(lab())
    assert (len(text.constraint), len(text.final)) == (5, 6)
    task = request.task(text)
    assert [len(task.split(split)) for split in ("ranking", "test")] == [5, 6]
    assert {example.id.split()[0] for example in task.split("test")} == {"tested"}
    blocks = spread(np.arange(40).reshape(20, 2), 4)[:, 0]
    assert blocks.tolist() == [0, 12, 26, 38]


def test_a_model_writes_its_text_once(tmp_path: Path) -> None:
    model = tiny()
    with Store(tmp_path / "store.sqlite") as store:
        own = Lab(store, progress=False)
        first = TextRequest(model, "", 12, 3, 4).result(own)
        more = TextRequest(model, "", 12, 3, 4, trained=30)
        assert more.known(store) is None
        second = more.result(own)
        assert TextRequest(model, "", 12, 3, 4, trained=30).known(store) is not None
    assert np.array_equal(first.final, second.final)  # whatever is trained on
    assert np.array_equal(first.constraint, second.constraint)
    assert (len(first.train), len(second.train)) == (0, 5)
    other = TextRequest(model, "", 12, 3, 4).result(lab())
    assert np.array_equal(other.final, first.final)


# Bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tasks": ()}, "on at least one task"),
        ({"tasks": ("text",)}, "always measured: name other tasks"),
        ({"tasks": ("iooi",)}, 'no task "iooi"'),
        ({"ranking": "atribution"}, 'no ranking "atribution"'),
        ({"ranking": "nowhere.json"}, "Cannot read"),
        ({"ranked_on": "iooi"}, 'no task "iooi"'),
        ({"text": "nowhere.txt"}, "There is no file nowhere.txt"),
        ({"n": 1}, "n must be at least 2, not 1"),
        ({"heal_steps": -1}, "heal-steps must be at least 0"),
        ({"draws": 1, "healed_draws": 2}, "at most as many can be healed"),
        ({"keep_groups": (0,)}, "whole numbers from 1 on, not 0"),
    ],
)
def test_settings_that_no_model_can_use(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        KIND.configure(**settings)


def test_sizes_and_scores_of_other_models(tmp_path: Path) -> None:
    file = write(toy_task(12), tmp_path / "toy.jsonl")
    with pytest.raises(HeadcountError, match="keeps 2: it can keep 1"):
        PrunedStudy(tiny(), KIND.configure(tasks=(file,), keep_groups=(2,), block=16))
    with pytest.raises(HeadcountError, match="longer than the 64 that tiny-llama can read"):
        PrunedStudy(tiny(), KIND.configure(tasks=(file,), block=65))
    other = HeadScores(HeadLayout((3, 3)), np.arange(6.0), "by hand")
    other.save(tmp_path / "scores.json")
    config = KIND.configure(tasks=(file,), ranking=str(tmp_path / "scores.json"), block=16)
    with pytest.raises(HeadcountError, match="belong to another model"):
        PrunedStudy(tiny(), config)


# The command


def saved(folder: Path, name: str = "llama") -> str:
    model = tiny(name)
    model.module.save_pretrained(folder)  # type: ignore[operator]
    model.tokenizer.save_pretrained(folder)
    return str(folder)


def command(tmp_path: Path, *words: str, model: str = "llama") -> list[str]:
    file = write(toy_task(16, targets=(1,)), tmp_path / "toy.jsonl")
    few = [f"--{name}={value}" for name, value in (FEW | {"n": 4, "draws": 2}).items()]
    base = saved(tmp_path / model, model)
    return ["prune", "--model", base, "--tasks", file, *few, "--quiet", "--no-store", *words]


def test_the_command_writes_a_checkpoint_and_what_it_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "smaller"
    assert main(command(tmp_path, "--cache", "0.6", "--out", str(out))) == 0
    said = capsys.readouterr().out
    assert "parameters: 23,520 → 17,376 (26.1 % less)" in said
    assert "cache, bytes per token: 512 → 256 (50.0 % less)" in said
    assert "best rescaled" in said
    assert f"The checkpoint: {out} (headcount doctor {out})" in said
    assert load_model(out).layout == HeadLayout((2, 2))
    assert verify(out / "measured").differences == ()
    assert (out / "measured" / "report.html").exists()


def test_the_command_refuses_early(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    for words, message in (
        (("--keep-groups", "1", "--out", str(tmp_path / "full")), "is not an empty folder"),
        (("--out", "new"), "Say how much to keep"),
        (("--cache", "2", "--out", "new"), "cache must be a share above 0 and up to 1, not 2"),
    ):
        assert main(["prune", "--model", "nowhere", *words]) == 2
        assert message in capsys.readouterr().err
    asked = ("--keep-groups", "2", "--out", str(tmp_path / "new"))
    assert main(command(tmp_path, *asked, model="gpt2")) == 2
    assert "cannot have" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
