"""How long a GGUF file takes to load: with transformers, and with headcount's cache.

    python benchmarks/loading.py MODEL.gguf            # some minutes

Each load has a process of its own. On a machine that does other work too, compare CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "loading.json"
LOADS = {  # name: whether headcount loads it, the environment, how many times
    "transformers, model and tokenizer": (False, {}, 1),
    "headcount, nothing kept": (True, {"HEADCOUNT_GGUF_CACHE": "off"}, 1),
    "headcount, the first time": (True, {}, 1),
    "headcount, from then on": (True, {}, 3),
}


def load(path: Path, ours: bool) -> dict[str, float]:
    """Load the file in this process; the time of imports does not count."""
    import torch
    import transformers

    from headcount.models.load import load_pretrained

    transformers.logging.set_verbosity_error()
    start, used = time.perf_counter(), time.process_time()
    if ours:
        model = load_pretrained(path, device="cpu").model
    else:
        options = {"gguf_file": path.name, "dtype": torch.float32}
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(str(path.parent), **options)
        transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    seconds = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - used}
    with torch.no_grad():
        return {**seconds, "sum": float(model(torch.arange(1, 9)[None]).logits.double().sum())}


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--once", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(load(options.path, options.once == "ours")))
        return
    from machine import describe_machine

    machine = describe_machine()
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name, (ours, extra, times) in LOADS.items():
            once = [sys.executable, __file__, str(options.path), "--once"]
            once += ["ours" if ours else "theirs"]
            settings = {**os.environ, "HEADCOUNT_CACHE": cache, **extra}
            for _ in range(times):
                answer = subprocess.run(
                    once, env=settings, check=True, text=True, stdout=subprocess.PIPE
                )
                rows.append({"name": name, **json.loads(answer.stdout.splitlines()[-1])})
                print(rows[-1], flush=True)
        kept = sum(file.stat().st_size for file in Path(cache).rglob("*") if file.is_file())
    facts = {
        "format": "headcount loading 1",
        "model": options.path.stem,
        "file_bytes": options.path.stat().st_size,
        "kept_bytes": kept,
        "machine": machine,
    }
    options.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
