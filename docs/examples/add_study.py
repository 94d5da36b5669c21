"""A study of your own: do the best heads of a ranking matter more than its worst?"""

from headcount import curve, load_model, make_task, run_study
from headcount.claims import Claim, judge
from headcount.studies import MODELS, PRESETS, STUDIES, Study


@STUDIES.register("best-and-worst", "Best against worst")
def best_and_worst(models, *, task="ioi", n=32, count=8, store=None, progress=True) -> Study:
    """Mask the best heads of a ranking, and its worst."""
    (model,) = models
    made = make_task(task, model.tokenizer, n=n)
    how = {"series": ("top", "bottom"), "store": store, "progress": progress}
    measured = curve(model, made, "attribution", counts=[0, count], **how)
    gap = measured.difference("top", "bottom", count)  # paired by example, with its interval
    claim = Claim("the best hurt more", None, gap.value, gap.low, gap.high, judge(gap, below=-0.05))
    return Study(
        name="best-and-worst",
        title=f"best-and-worst · {model.name}",
        rows=measured.rows,
        claims=[claim],
        figures={"figure": measured.plot()},
        settings={"task": task, "n": n, "count": count},
        model={model.name: model.facts},
    )


PRESETS["best-and-worst"] = {"quick": {"n": 16}, "full": {"n": 200}}
MODELS["best-and-worst"] = ("smollm2-135m",)

if __name__ == "__main__":
    study = run_study("best-and-worst", load_model("smollm2-135m"))
    print(study, *study.claims, sep="\n")  # study.save(folder) leaves the usual files
