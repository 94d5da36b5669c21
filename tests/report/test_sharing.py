"""Results go to the hub as a dataset with a card, and into experiment trackers as tables."""

from __future__ import annotations

import json
import sys
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import yaml
from planted import plant
from report.page_samples import NASTY, write_sample

from headcount import HeadcountError, Study, curve
from headcount.report import read_result
from headcount.report.curve_study import curve_study
from headcount.report.hub import card_of, upload
from headcount.studies.verify import verify

COMPARISON = {"claim": "masking hurts", "one": "top", "other": "random", "count": 1, "below": -0.8}


@pytest.fixture(scope="module")
def study() -> Study:
    planted = plant(needed=["0.1"], layers=2, heads=2)
    result = curve(planted.model, planted.task, counts=[0, 1], seeds=2)
    return curve_study(result, planted.model, planted.task, {}, [COMPARISON])


class FakeHub:
    """Records what is uploaded; its answers are those of `HfApi`."""

    def __init__(self, token: str | None = None) -> None:
        made.append(self)
        self.token = token
        self.files: dict[str, bytes] = {}

    def create_repo(self, repo_id: str, **how: Any) -> huggingface_hub.RepoUrl:
        huggingface_hub.utils.validate_repo_id(repo_id)  # as the true one does
        self.how = how
        name = repo_id if "/" in repo_id else f"me/{repo_id}"
        return huggingface_hub.RepoUrl(f"https://huggingface.co/datasets/{name}")

    def create_commit(self, repo_id: str, operations: Any, **how: Any) -> None:
        self.repo, self.commit = repo_id, how
        for one in operations:
            with one.as_file() as file:
                self.files[one.path_in_repo] = file.read()


made: list[FakeHub] = []


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[FakeHub]:
    made.clear()
    monkeypatch.setattr(huggingface_hub, "HfApi", FakeHub)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_of_the_user")
    return made


def test_a_study_is_uploaded_whole_and_can_be_verified(
    study: Study, hub: list[FakeHub], tmp_path: Path
) -> None:
    address = study.to_hub("heads", licence="cc-by-4.0")
    (one,) = hub
    assert address == "https://huggingface.co/datasets/me/heads"
    assert (one.repo, one.token) == ("me/heads", None)
    assert one.how == {"repo_type": "dataset", "private": True, "exist_ok": True}
    assert one.commit["repo_type"] == "dataset"
    assert study.title in one.commit["commit_message"]
    for name, content in one.files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    written = json.loads(one.files["run.json"])
    assert one.files.keys() == {*written["files"], "run.json", "README.md"}
    assert verify(tmp_path).differences == ()


def test_the_card_tells_the_hub_and_its_readers_what_there_is(
    study: Study, hub: list[FakeHub]
) -> None:
    study.to_hub("me/heads", private=False, token="hf_other")
    assert (hub[0].how["private"], hub[0].token) == (False, "hf_other")
    _, front, body = hub[0].files["README.md"].decode().split("---\n", 2)
    facts = yaml.safe_load(front)
    assert facts["pretty_name"] == study.title
    assert facts["tags"][0] == "headcount"
    assert "license" not in facts
    tables = {one["config_name"]: one["data_files"] for one in facts["configs"]}
    assert tables == {"points": "curves.csv", "heads": "heads.csv"}
    assert facts["configs"][0]["default"] is True
    assert f"# {study.title}\n" in body
    assert "- Model: plant-0, 4 heads, float32\n" in body
    assert "![figure](figure.png)" in body
    (claim,) = study.claims
    assert f"| masking hurts |  | {claim.measured:.3f}".replace("-", "−") in body
    assert f"| {claim.verdict} |\n" in body
    assert all(f"\n- {note}" in body for note in study.notes)
    assert "hf download me/heads --repo-type dataset" in body
    assert "\n\n\n" not in body


def test_a_card_escapes_texts_of_a_stranger(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "theirs", model="a | b\n# no title")
    card = card_of(read_result(folder), "me/heads")
    assert NASTY not in card
    assert "&lt;img src=x onerror=alert(1)&gt;" in card
    assert "\n# no title" not in card
    assert "- Model: a \\| b # no title, 11 heads" in card
    rows = [line for line in card.splitlines() if line.startswith("| names are shown")]
    assert [row.count(" | ") for row in rows] == [4]


def test_the_bundled_weights_are_said_to_be_dequantised(tmp_path: Path) -> None:
    folder = write_sample(tmp_path / "ours", model="smollm2-135m-q4")
    words = "dequantised from SmolLM2-135M-Instruct.Q4_1.gguf"
    assert words in card_of(read_result(folder), "me/heads")


def test_only_files_of_the_result_are_uploaded(
    study: Study, hub: list[FakeHub], tmp_path: Path
) -> None:
    study.save(tmp_path / "out")
    (tmp_path / "out" / "token.txt").write_text("secret")
    upload(tmp_path / "out", "heads")
    assert "token.txt" not in hub[0].files
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    (tmp_path / "secret").write_text("secret")
    for name in ("../secret", "lost.csv"):
        (tmp_path / "out" / "run.json").write_text(json.dumps({**run, "files": [name]}))
        with pytest.raises(HeadcountError, match=r"lacks the file .* that its run\.json names"):
            upload(tmp_path / "out", "heads")


def test_what_cannot_be_uploaded_is_refused_in_one_sentence(
    study: Study, hub: list[FakeHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HeadcountError, match=r"to the dataset my heads \(Repo id must"):
        study.to_hub("my heads")

    def refuse(self: FakeHub, repo_id: str, **how: Any) -> None:
        raise OSError("403 Forbidden: you have no write access.\nRequest ID: 1")

    monkeypatch.setattr(FakeHub, "create_repo", refuse)
    with pytest.raises(HeadcountError, match=r"heads \(403 Forbidden: .* access\): check its name"):
        study.to_hub("heads")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(HeadcountError, match=r"needs a login: run hf auth login, or set HF_TOKEN"):
        study.to_hub("heads")
    assert all(not one.files for one in hub)


class Tracker(SimpleNamespace):
    """The names of W&B and trackio that a study uses; `logged` is what it gave them."""

    def __init__(self) -> None:
        super().__init__(run=None, context_vars=SimpleNamespace(current_run=ContextVar("run")))
        self.context_vars.current_run.set(None)
        self.logged: dict[str, Any] = {}

    def start(self) -> None:
        self.run = object()
        self.context_vars.current_run.set(self.run)

    def log(self, what: dict[str, Any]) -> None:
        self.logged |= what

    Image = staticmethod(lambda picture: picture)
    Table = staticmethod(lambda dataframe: dataframe)


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_tables_and_figures_are_logged_in_one_step(
    study: Study, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = Tracker()
    monkeypatch.setitem(sys.modules, name, tracker)
    with pytest.raises(HeadcountError, match=rf"{name} has no run to log into: call {name}\.init"):
        study.log_to(name)
    tracker.start()
    study.log_to(name)
    assert tracker.logged.keys() == {"points", "claims", "heads", "figure"}
    assert tracker.logged["points"].equals(study.to_frame())
    assert tracker.logged["figure"].size[0] > 600


def test_mlflow_gets_each_table_and_figure(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: dict[str, Any] = {}
    own = SimpleNamespace(
        active_run=lambda: None,
        log_table=lambda table, file: logged.update({file: table}),
        log_figure=lambda figure, file: logged.update({file: figure}),
    )
    monkeypatch.setitem(sys.modules, "mlflow", own)
    with pytest.raises(HeadcountError, match=r"call mlflow\.start_run\(\) first"):
        study.log_to("mlflow")
    own.active_run = object
    study.log_to("mlflow")
    assert logged.keys() == {"points.json", "claims.json", "heads.json", "figure.png"}
    assert logged["claims.json"]["claim"].tolist() == ["masking hurts"]
    assert logged["figure.png"] is study.figures["figure"]


def test_an_unknown_tracker_is_refused(study: Study) -> None:
    with pytest.raises(HeadcountError, match=r'no tracker "wandbs" .* Did you mean "wandb"'):
        study.log_to("wandbs")
