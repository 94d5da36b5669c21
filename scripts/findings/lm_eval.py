"""The tables of findings of benchmarks of lm-eval."""

from __future__ import annotations

from findings.tables import MODELS, RESULTS, interval, markdown, one, rows, table


@table("lm-eval-scores")
def lm_eval_scores() -> str:
    """The scores of all benchmarks, with the best heads and with random ones masked."""
    body = []
    for model, name in MODELS.items():
        folder = f"lm-eval/{model}"
        if not (RESULTS / folder).is_dir():
            continue
        for row in rows(f"{folder}/curves.csv", series="top"):
            about = {key: row[key] for key in ("task", "metric", "count")}
            others = [one(f"{folder}/curves.csv", series=s, **about) for s in ("random", "matched")]
            cells = [
                name,
                f"{row['task']}, {row['metric']}",
                row["count"],
                *map(interval, [row, *others]),
            ]
            gap = {"difference": "TopK minus RandomK", **about}
            masked = row["count"] != "0"
            body.append(
                [*cells, interval(one(f"{folder}/differences.csv", **gap)) if masked else ""]
            )
    header = ("model", "benchmark", "heads masked", "TopK", "RandomK", "layer-matched")
    return markdown((*header, "TopK minus RandomK"), body)
