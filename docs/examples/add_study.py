"""A study of your own: do the best heads of a ranking matter more than its worst?"""

from dataclasses import asdict, dataclass

import headcount
from headcount import load_model, make_task, run_study
from headcount.claims import Claim, judge
from headcount.curves import CurveRequest, CurveSettings
from headcount.metrics import get_metric
from headcount.rankings import Ranking
from headcount.registry import setting
from headcount.report.study import Study
from headcount.studies.description import Description


@dataclass(frozen=True)
class BestAndWorst:
    """The settings: from them come options, defaults and the record of a run."""

    task: str = setting("ioi", "name of the task")
    n: int = setting(32, "examples")
    count: int = setting(8, "heads that are masked")


PRESETS = {"quick": {"n": 16}, "full": {"n": 200}}


@headcount.study(
    "best-and-worst", "best against worst heads of a ranking", config=BestAndWorst, presets=PRESETS
)
def best_and_worst(models, config) -> Description:
    """What is measured, and what is concluded from it."""
    (model,) = models
    task = make_task(config.task, model.tokenizer, n=config.n)
    how = CurveSettings(counts=(0, config.count), series=("top", "bottom"))
    ranking = Ranking.of(model, task, "attribution")
    request = CurveRequest(model, task, ranking, get_metric("accuracy"), how)

    def conclude(results) -> Study:
        curve = results["curve"]
        gap = curve.difference("top", "bottom", config.count)  # paired by example
        return Study(
            name="best-and-worst",
            title=f"best-and-worst · {model.name}",
            rows=curve.rows,
            claims=[Claim.of("the best hurt more", None, gap, judge(gap, below=-0.05))],
            figures={"figure": curve.figure()},
            settings=asdict(config),
            model={model.name: model.facts},
        )

    return Description({"curve": request}, conclude)


if __name__ == "__main__":
    study = run_study("best-and-worst", load_model("smollm2-135m-q4"))
    print(study, *study.claims, sep="\n")  # study.save(folder) leaves the usual files
