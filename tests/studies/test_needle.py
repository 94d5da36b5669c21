"""The study `needle`: on planted copy heads, which are all that the task needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.text import Text
from planted_needle import needle_tokenizer, plant_needle
from tiny import tiny_model

from headcount import HeadcountError, run_study, wrap
from headcount.figures.lengths import LengthLine, plot_lengths
from headcount.metrics.logits import Scored
from headcount.report.study import Study
from headcount.studies import study_kind
from headcount.studies.needle.score import SIGNED, both
from headcount.studies.verify import verify

SETTINGS: dict[str, Any] = {
    "lengths": (90, 180),
    "depths": (0.2, 0.8),
    "n": 24,
    "counts": (2,),
    "seeds": 3,
}


@pytest.fixture(scope="module")
def study() -> Study:
    return run_study("needle", plant_needle().model, **SETTINGS)


def mean(study: Study, length: int, series: str, count: int, **about: str) -> float:
    wanted = {"length": length, "series": series, "count": count}
    wanted |= {"metric": "accuracy", "positions": "all", **about}
    (row,) = (row for row in study.rows if wanted.items() <= row.items())
    return float(row["value"])


def test_masking_the_copy_heads_breaks_the_task(study: Study) -> None:
    scores = study.scores["needle-retrieval-score"]
    assert set(scores.top(2)) == plant_needle().heads  # type: ignore[attr-defined]
    for length in (90, 180):
        assert mean(study, length, "top", 0) == 1
        for positions in ("all", "answer"):
            assert mean(study, length, "top", 2, positions=positions) == 0
            assert mean(study, length, "random", 2, positions=positions) == 1
            assert mean(study, length, "matched", 2, positions=positions) == 1
        lost = mean(study, length, "top", 2, metric="logprob")
        assert lost == pytest.approx(-2 * np.log(len(needle_tokenizer())), abs=1e-3)


def test_the_claims_say_so(study: Study) -> None:
    verdicts = [claim.verdict for claim in study.claims]
    assert verdicts[:6] == ["supported"] * 6
    assert study.claims[-1].claim.startswith("the best heads matter more in longer texts")
    assert verdicts[-1] != "supported"  # the planted heads matter as much at all lengths
    assert any("2 heads of 12 have a retrieval score" in note for note in study.notes)


def test_the_folder_can_be_verified(study: Study, tmp_path: Path) -> None:
    study.save(tmp_path)
    found = verify(tmp_path)
    assert found.differences == ()
    assert found.numbers > 200
    assert {"figure", "depths"} == set(study.figures)
    depths = study.tables["Depths"]
    assert {(row["length"], row["depth"]) for row in depths} == {
        (length, depth) for length in (90, 180) for depth in (0.2, 0.8)
    }


def test_figures_are_readable_in_a_column(study: Study) -> None:
    figure = study.figures["figure"]
    assert figure.get_figwidth() <= 3.5
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]
    assert min(sizes) >= 6
    assert len(figure.axes) == 4
    assert figure.axes[0].get_xscale() == "log"
    assert [label.get_text() for label in figure.axes[-1].get_xticklabels()] == ["90", "180"]


def test_lengths_at_chance_are_named_and_not_comparable() -> None:
    torch.manual_seed(0)
    module = tiny_model("llama", vocab_size=len(needle_tokenizer()), max_position_embeddings=256)
    model = wrap(module, needle_tokenizer(), name="random")
    found = run_study("needle", model, **{**SETTINGS, "counts": (1,)})
    assert {claim.verdict for claim in found.claims} == {"not comparable"}
    assert all("at chance on 90 tokens, 180 tokens" in claim.reason for claim in found.claims)
    assert sum("is at chance" in note for note in found.notes) == 2


def test_shaded_lengths_are_those_at_chance() -> None:
    line = LengthLine("whole", "all heads", "#000000", [(128, 0.5, 0.4, 0.6), (256, 0.1, 0, 0.2)])
    figure = plot_lengths({"Accuracy": {"mask": [line]}}, shares=["Accuracy"], at_chance=[256])
    (shade,) = figure.axes[0].patches
    assert shade.get_x() < 256 < shade.get_x() + shade.get_width()  # type: ignore[attr-defined]


def test_one_pass_gives_both_scores() -> None:
    logits = torch.tensor([[[9.0, 0, 0]], [[0, 9.0, 0]], [[200.0, 0, 0]]])  # (rows, tokens, vocab)
    targets = torch.zeros(3, 1, dtype=torch.long)
    scores = both(SIGNED.function(Scored(logits, targets, targets[:, :0])).double().numpy())
    assert scores["accuracy"].tolist() == [1, 0, 1]  # also where the log-probability is 0
    expected = logits.log_softmax(-1)[:, 0, 0]
    np.testing.assert_allclose(scores["logprob"], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lengths": (100, 600)}, "A prompt of 600 tokens and 8 new ones do not fit into the 512"),
        ({"lengths": None}, "A prompt of 1000 tokens and 8 new ones do not fit into the 512"),
        ({"lengths": (100, 100)}, "different whole numbers above 0, in rising order"),
        ({"lengths": ()}, "in rising order, not none"),
        ({"counts": (7,)}, "need 7 heads outside the best 7, and needle-plant has only 12"),
        ({"counts": (0,)}, "name a count"),
        ({"seeds": 1}, "seeds of at least 2"),
        ({"ranking": "retrieval"}, 'no ranking "retrieval"'),
        ({"depths": (2.0,)}, "different numbers from 0 to 1"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        run_study("needle", plant_needle().model, **{**SETTINGS, **settings})


def test_lengths_end_where_the_model_stops_reading() -> None:
    kind = study_kind("needle")
    model = plant_needle(reads=2100).model
    ahead = kind.describe([model], kind.configure("full", n=2, depths=(0.5,), counts=(1,)))
    assert [key[0] for key in ahead.requests] == [1000, 1000, 2000, 2000]  # type: ignore[index]
