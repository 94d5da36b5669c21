"""How soon the explorer answers a click, and begins to write, asked over its own local server.

    python benchmarks/explorer.py --out benchmarks/results/explorer.json

One model, one prompt of 30 tokens. A click switches one more head of a layer off; a head of an
early layer is the slowest, because everything after it runs again. Each time is from sending the
request to the event with the probabilities of the whole model, the head set and one random draw; to
the event with all five draws; and, as the page asks for a text when these are there, to the first
written token of all three. At last, clicks while a curve is measured, which wait for its pass.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import describe_machine

from headcount import HeadScores, load_model, make_task
from headcount.explorer.launch import ExplorerServer
from headcount.explorer.scores import Scores
from headcount.explorer.session import ExplorerSession

TEXT = (
    "When Mary and John went to the garden on a bright morning in early spring, after a long walk"
)
TOKENS = 30
LAYERS = (0, 10, 20)


class Page:
    """Asks as the page does."""

    def __init__(self, server: ExplorerServer) -> None:
        self.port, self.token = server.port, server.link.partition("token=")[2]

    def times(self, kind: str, **asked: Any) -> list[float]:
        """Milliseconds until each event with an answer; the end is waited for."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        headers = {"Content-Type": "application/json", "X-Headcount-Token": self.token}
        body = json.dumps({"kind": kind, "page": "benchmark", **asked})
        start, found = time.perf_counter(), []
        connection.request("POST", "/ask", body, headers)
        for line in connection.getresponse():
            if line.decode().strip() == f"event: {kind}":
                found.append(1000 * (time.perf_counter() - start))
        connection.close()
        return found


def summary(times: list[float]) -> dict[str, float]:
    """Median, smallest and largest of some times."""
    numbers = (np.median(times), min(times), max(times))
    return dict(
        zip(("median", "least", "most"), (round(float(n), 1) for n in numbers), strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=8)
    arguments = parser.parse_args()
    model = load_model("smollm2-135m-q4")
    _ = model.fast_paths
    prompt = model.tokenizer.decode(model.tokenizer.encode(TEXT * 2)[:TOKENS])
    result: dict[str, Any] = {
        "model": model.name,
        "weights": model.precision,
        "machine": describe_machine(),
    }
    result |= {"threads": torch.get_num_threads(), "repeats": arguments.repeats}
    result["niceness"] = os.nice(0)  # below 0: with priority over the machine's other work
    result["prompt_tokens"] = len(model.tokenizer.encode(prompt))
    scores = HeadScores(model.layout, np.arange(float(model.layout.total)), "by number")
    task, known = make_task("ioi", model, n=64), Scores({"by number": scores})
    with ExplorerServer(ExplorerSession(model, task, known, store=None)) as server:
        page, state = Page(server), {"prompt": prompt}
        result["a new prompt, ms"] = round(page.times("probabilities", state=state)[0], 1)
        for layer in LAYERS:
            clicks, draws, texts = [], [], []
            for head in range(arguments.repeats):
                heads = [f"{layer}.{index}" for index in range(1 + head % 8)]
                asked = {"state": {**state, "heads": heads}}
                start = time.perf_counter()
                answers = page.times("probabilities", **asked)
                before = 1000 * (time.perf_counter() - start)
                clicks.append(answers[0])
                draws.append(answers[-1])
                texts.append(before + page.times("text", new=4, **asked)[0])
            for what, times in (
                ("click to probabilities with one random draw", clicks),
                ("click to probabilities with all five", draws),
                ("click to text", texts),
            ):
                result[f"{what}, first head in layer {layer}, ms"] = summary(times[1:])
        asked = {"state": {**state, "colour": "by number"}, "metric": "logit_difference"}
        curve = threading.Thread(target=page.times, args=("curve",), kwargs=asked)
        curve.start()
        clicks = []
        for head in range(arguments.repeats):
            time.sleep(0.5)
            asked = {"state": {**state, "heads": [f"0.{head % 9}"]}}
            clicks.append(page.times("probabilities", **asked)[0])
        assert curve.is_alive(), "the curve was measured before the clicks"
        result["click while a curve is measured, first head in layer 0, ms"] = summary(clicks)
    curve.join()
    result["load_at_end"] = round(os.getloadavg()[0], 2)
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
