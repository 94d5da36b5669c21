"""How soon the explorer answers a click, and begins to write, asked over its own local server.

    python benchmarks/explorer.py --out benchmarks/results/explorer.json

One model, one prompt of 30 tokens. A click switches one more head of a layer off; a head of an
early layer is the slowest, because everything after it runs again. Each time is from sending the
request to the event with the probabilities of the whole model, the head set and random heads, or to
the first written token of these three.
"""

from __future__ import annotations

import argparse
import http.client
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import describe_machine

from headcount import explore, load_model
from headcount.explorer.launch import ExplorerServer

TEXT = (
    "When Mary and John went to the garden on a bright morning in early spring, after a long walk"
)
TOKENS = 30
LAYERS = (0, 10, 20)


class Page:
    """Asks as the page does."""

    def __init__(self, server: ExplorerServer) -> None:
        self.port, self.token = server.port, server.link.partition("token=")[2]

    def time_to(self, event: str, kind: str, **asked: Any) -> float:
        """Milliseconds until the first event of this name; the rest is waited for."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        headers = {"Content-Type": "application/json", "X-Headcount-Token": self.token}
        body = json.dumps({"kind": kind, "page": "benchmark", **asked})
        start, found = time.perf_counter(), None
        connection.request("POST", "/ask", body, headers)
        for line in connection.getresponse():
            if found is None and line.decode().strip() == f"event: {event}":
                found = 1000 * (time.perf_counter() - start)
        connection.close()
        assert found is not None, f"no {event}"
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
    result["prompt_tokens"] = len(model.tokenizer.encode(prompt))
    with explore(model, None, widget=False, browser=False) as server:
        page, state = Page(server), {"prompt": prompt}
        first = page.time_to("probabilities", "probabilities", state=state)
        result["a new prompt, ms"] = round(first, 1)
        for what, event, more in (
            ("click", "probabilities", {}),
            ("text", "text", {"new": 4}),
        ):
            kind = "probabilities" if what == "click" else "text"
            for layer in LAYERS:
                times = []
                for head in range(arguments.repeats):
                    heads = [f"{layer}.{index}" for index in range(1 + head % 8)]
                    asked = {"state": {**state, "heads": heads}, **more}
                    times.append(page.time_to(event, kind, **asked))
                result[f"{what}, first head in layer {layer}, ms"] = summary(times[1:])
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
