"""Write docs/benchmarks.md from the files in benchmarks/results.

python benchmarks/report.py
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
RESULTS = Path(__file__).parent / "results"
PLAIN, OURS = "plain", "headcount"
LONG = "headcount long prompts 1"  # the format of what long_prompts.py writes
DECODING, FIRST = "headcount decoding 1", "headcount first call 1"
ADAPTERS = "headcount adapters against gates 1"
REAL = {"0.5B": "0.5b", "1.5B": "1.5b"}  # the shapes of real models, by a part of their names
DECODING_BARS = {"0.5b": 8, "1.5b": 8, "8b": 4}  # × `generate`, by shape
FIRST_BAR = 1.1  # × plain hooks
INTRODUCTION = """# Benchmarks

Several ways to do the same sweeps over the heads of a model. In each table all contestants ran in
one process, taking turns, on the same weights, prompts and head sets; times are medians, and *×
headcount* is how many times as long as headcount a contestant takes. *Difference* is the largest
one from plain hooks in any log-probability: for a contestant with other numbers no time is given.
Texts that are written in bfloat16 may part where two tokens are nearly as likely: the tables say
how many are equal. Head sets are measured as far as the time allows, evenly spread over all that
there are: every table says how many. Where the *first round* stands apart, which holds what a
process does only once, later rounds are compared, or the first ones where somebody had no other.
On a machine that does other work too, the time that a contestant waits for a processor is noise;
its own CPU time is not. *Set-up* is done once for each model and not counted; for headcount it is
the proof of the head sites and of the fast paths. *Peak memory* is, on a CPU, that of a process
of the contestant's own, weights and libraries included; on a GPU that of the tensors on it; in
brackets what the sweep added.

What is compared, and how to run it: [benchmarks/README.md](../benchmarks/README.md). This page is
written by `benchmarks/report.py` from the files in `benchmarks/results`; nothing in it is edited by
hand.
"""
TITLES = {
    "heads": "single heads off, one after the other",
    "prefix": "single heads off, behind shared solved examples",
    "curve": "the head sets of a TopK curve with 10 random draws at each count",
    "decoding": "decoding under masks",
    "gates": "causal gates fitted, against nam-causal-head-gating",
    "memory": "memory of a sweep",
    "exact": "in float32",
}
LONG_PARTS = {
    "many": "32 heads off, one of them in the first layer",
    "single": "one head off",
    "late": "32 heads off at the last {} positions",
}


def write_page() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"Wrote {PAGE.relative_to(PAGE.parents[1])}.")


def page() -> str:
    """The page, from all results."""
    files = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))
    ]
    ledgers = [one for one in files if one.get("format", "").startswith("headcount ledger")]
    sections = [INTRODUCTION, summary(ledgers)]
    sections += [section(one) for one in ledgers]
    sections += [growth_section(one) for one in files if one.get("format") == "headcount growth 1"]
    sections += [passes_section(one) for one in files if "rate" in one]
    sections += [decoding_section(one) for one in files if one.get("format") == DECODING]
    sections += [first_section(one) for one in files if one.get("format") == FIRST]
    sections += [long_section(one) for one in files if one.get("format") == LONG]
    sections += [
        precision_section(one) for one in files if one.get("format") == "headcount precision 1"
    ]
    sections += [
        loading_section(one) for one in files if one.get("format") == "headcount loading 1"
    ]
    sections += [
        real_section(one) for one in files if one.get("format") == "headcount real models 1"
    ]
    sections += adapters_section([one for one in files if one.get("format") == ADAPTERS])
    return "\n".join(sections)


def adapters_section(files: Sequence[dict[str, Any]]) -> list[str]:
    """What `adapters.py` measured: head sets as LoRA adapters against gates."""
    rows = []
    for found in files:
        for row in found["rows"]:
            cells = [found["model"], row["dtype"], row["head set"], str(row["rank"])]
            cells += [f"{row['bytes'] / 1e6:.1f}", f"{row['logits']:.1e}", f"{row['logprob']:.1e}"]
            rows.append([*cells, f"{row['adapter mean']:.1e}", f"{row['gates mean']:.1e}"])
    if not rows:
        return []
    header = ["model", "weights", "random heads", "rank", "MB", "logits apart", "log-prob. apart"]
    header += ["adapter: mean error", "gates: mean error"]
    prompts = ", ".join(f"{found['prompts']} of {found['model']}" for found in files)
    text = (
        "## Head sets as LoRA adapters\n\n"
        f"PEFT applies the adapters, headcount the gates; IOI prompts ({prompts}). *Apart* is the "
        "largest difference between the two, of logits relative to the largest logit of a prompt, "
        "of log-probabilities of the answer in nats. *Mean error* is that of these "
        "log-probabilities against gates in float32. *MB* is the size of an adapter's folder. All "
        f"are 4-bit files, dequantised.\n\n{table(header, rows, left=(0, 1, 2))}\n"
    )
    return [text, *(_batch_speed(found) for found in files if found["speed"])]


def _batch_speed(found: dict[str, Any]) -> str:
    """The time of batches in which each row has a head set of its own."""
    timed = found["speed"]
    per_row = [one["cpu seconds"]["gates, one for each row"] for one in timed]
    rows = []
    for way in timed[0]["cpu seconds"]:
        cells = [way]
        for one, base in zip(timed, per_row, strict=True):
            seconds = one["cpu seconds"][way]
            cells += [f"{seconds:.3f}", f"{seconds / base:.2f}"]
        rows.append(cells)
    header = [""]
    for one in timed:
        header += [f"{one['rows']} × {one['tokens']} tokens: s", "÷ gates per row"]
    rounds = " and ".join(str(one["rounds"]) for one in timed)
    return (
        "Batches in which each row has a head set of its own, six random heads off "
        f"({found['model']}, float32, {found['threads']} thread of "
        f"{found['machine']['processor']}); adapters of rank {timed[0]['rank']} or less. "
        f"CPU seconds, the median of {rounds} rounds in turns.\n\n"
        f"{table(header, rows)}\n\n"
        f"- Versions: {', '.join(f'{n} {v}' for n, v in found['versions'].items())}\n"
        "- Command: `python benchmarks/adapters.py`\n"
    )


def decoding_section(found: dict[str, Any]) -> str:
    """What `decoding.py` measured on a GPU, with the results for all shapes in one file."""
    names = {"plain": "no head off", "gated": "one head set", "head sets": "a head set per prompt"}
    rows = []
    for run in found["runs"]:
        options = run["options"]
        real = "" if options["shape"] else options["model"].removesuffix(".gguf")
        shape = options["shape"] or next(REAL[part] for part in REAL if part in real)
        for way, one in run["ways"].items():
            cells = [real or f"{shape}, random", options["dtype"]]
            cells += [f"{options['prompts']} × {options['new']}"]
            cells += [names[way], f"{one['generate_s']:.2f}", f"{one['ours_s']:.2f}"]
            bar = DECODING_BARS[shape] if options["dtype"] == "bfloat16" else None
            cells += [f"{one['times_as_fast']:.1f} ×", f"{bar} ×" if bar else "–"]
            cells += [f"{one['step_ms']:.2f}"]
            cells += [f"{run['floor_ms']:.2f}", f"{100 * one['share_of_bandwidth']:.0f} %"]
            cells += [f"{one['equal_texts']}" if "equal_texts" in one else "–"]
            rows.append([*cells, f"{one['largest_gap']:.2f}" if "largest_gap" in one else "–"])
    header = ["model", "weights", "prompts × new tokens", "heads", "`generate`: s", "headcount: s"]
    header += ["times as fast", "bar", "ms a step", "floor: ms", "share", "equal texts"]
    header += ["largest gap"]
    first = found["runs"][0]
    commands = "\n".join(f"  - `{run['command']}`" for run in found["runs"])
    return (
        f"## Decoding on one {first['machine']['accelerator']}\n\n"
        "Two real models on word problems, and random weights in a published shape on prompts of "
        f"{first['options']['tokens']} tokens; from the second call on. "
        "headcount writes in slots: steps are captured as a graph, and "
        "waiting prompts take the places of finished ones. *ms a step* holds the pass over the "
        "prompts too; the *floor* of a step is the time in which the card reads the weights and "
        "the cache once, and *share* the floor over the step. *Largest gap* is how far apart, in "
        "nats, the two tokens are at which texts part: in bfloat16 near ties break either way, "
        "everywhere with random weights; in float32 all texts are equal. *Bar* is what we had set "
        "ourselves. Other work ran on the same machine, in part on the same card.\n\n"
        f"{table(header, rows, left=(0, 1, 3))}\n\n"
        f"- Versions: {', '.join(f'{n} {v}' for n, v in first['versions'].items())}\n"
        f"- Commands:\n{commands}\n"
    )


def first_section(found: dict[str, Any]) -> str:
    """What `first_call.py` measured: the first call of a process against plain hooks."""
    rows = []
    for row in found["rows"]:
        plain = statistics.median(row["plain"]["seconds"])
        cells = [row["shape"], row["work"], str(row["prompts"]), f"{plain:.2f}"]
        for way in ("first", "again"):
            taken = statistics.median(row[way]["seconds"])
            cells += [f"{taken:.2f}", f"{row[way]['ratio']:.2f}"]
        rows.append(cells)
    header = ["shape", "work", "prompts", "plain hooks: s", "first: s", "÷ plain"]
    header += ["again: s", "÷ plain"]
    machine = found["machine"]
    return (
        f"## The first call of a process, on {machine.get('accelerator') or machine['processor']}"
        "\n\nEach cell is a process of its own, with the model in memory. *First*: nothing is "
        "remembered, so the model is proven; *again*: a second process, which recalls the proof. "
        f"Our bar is {FIRST_BAR} × plain hooks. "
        f"{found['options']['dtype']}, {found['options']['tokens']} tokens in a prompt.\n\n"
        f"{table(header, rows, left=(0, 1))}\n\n- Command: `{found['command']}`\n"
    )


def loading_section(found: dict[str, Any]) -> str:
    """How long a GGUF file takes to load, with and without the cache."""
    names = list(dict.fromkeys(row["name"] for row in found["rows"]))
    rows = []
    for name in names:
        same = [row for row in found["rows"] if row["name"] == name]
        times = [f"{statistics.median(row[key] for row in same):.1f}" for key in ("seconds", "cpu")]
        rows.append([name, *times, str(len(same))])
    equal = len({row["sum"] for row in found["rows"]}) == 1
    machine = found["machine"]
    return (
        "## Loading a GGUF file\n\n"
        f"{found['model']} ({found['file_bytes'] / 1e6:.0f} MB), in float32, each load in a "
        "process of its own, without the imports. headcount keeps "
        f"{found['kept_bytes'] / 1e9:.1f} GB in its cache; the logits are "
        f"{'equal to the last bit' if equal else 'NOT equal'}.\n\n"
        f"{table(['', 'seconds', 'CPU seconds', 'loads'], rows)}\n\n"
        f"- Machine: {machine['processor']}, {machine['cores']} cores; load before the start "
        f"{machine['load_at_start']}\n- Command: `python benchmarks/loading.py FILE.gguf`\n"
    )


def real_section(found: dict[str, Any]) -> str:
    """What real models reach with all heads on: a row for each task, a column for each model."""
    models = list(dict.fromkeys(row["model"] for row in found["rows"]))
    tasks = list(dict.fromkeys(row["task"] for row in found["rows"]))
    cells = {}
    for row in found["rows"]:
        text = f"{row['accuracy']:.2f} [{row['low']:.2f}, {row['high']:.2f}], n = {row['n']}"
        cells[row["task"], row["model"]] = text + (" †" if row["at chance"] else "")
    rows = [[task, *(cells.get((task, model), "–") for model in models)] for task in tasks]
    return (
        "## Real models with all heads on\n\n"
        "Accuracy (greedy decoding gives a right answer) with its 95 % interval, on up to "
        f"{found['examples']} examples of each task, in {found['dtype']}. All three are 4-bit "
        "files, dequantised. † marks a model that is not clearly better than always giving the "
        "commonest answer: its heads cannot be studied on that task. On Greater Than, whose years "
        "these tokenizers split into digits, start years are the last of their decade. With any "
        "start year the 1.5B model had 0.53: answers in the start decade itself, which is neither "
        "right nor wrong, counted as wrong.\n\n"
        f"{table(['task', *models], rows)}\n\n- Command: `{found['command']}`\n"
    )


def summary(ledgers: Sequence[dict[str, Any]]) -> str:
    """How many times as long the others take, in one table."""
    header = ["sweep", "device", "plain hooks", "fastest other", "which"]
    rows = []
    for ledger in ledgers:
        if "title" in ledger:  # something apart
            continue
        for race in ledger["races"]:
            good = {row["key"]: row for row in race["rows"] if row.get("agrees")}
            if race["part"] == "exact" or OURS not in good or len(good) < 2:
                continue
            times = {key: time for key, row in good.items() if (time := _time(row, basis(race)))}
            best = min((key for key in times if key != OURS), key=times.__getitem__)
            plain = f"{times[PLAIN] / times[OURS]:.2f} ×" if PLAIN in times else "–"
            what = f"{race['model']}: {TITLES[race['part']]}"
            ratio = f"{times[best] / times[OURS]:.2f} ×"
            rows.append([what, place(ledger), plain, ratio, good[best]["name"]])
    if not rows:
        return ""
    text = "How many times as long as headcount the others take (below 1 × they are faster):"
    return f"{text}\n\n{table(header, rows, left=(0, 1, 4))}\n"


def precision_section(found: dict[str, Any]) -> str:
    """How far each number format is from float32, by headcount's plans and by a plain loop."""
    rows = [
        [
            row["dtype"],
            row["device"],
            *(f"{row[f'{who} {what}']:.1e}" for who in (PLAIN, OURS) for what in ("mean", "most")),
            f"{row['apart']:.1e}",
        ]
        for row in found["rows"]
    ]
    header = ["weights", "device", "plain loop: mean", "most", "headcount: mean", "most", "apart"]
    return (
        "## Precision\n\n"
        f"{found['model']}, IOI, log-probability of the answer; {found['prompts']} prompts, "
        f"{found['head sets']} single heads masked. Errors are against a plain loop in float32. In "
        "half precision the error of headcount is that of the plain loop, to two digits. "
        "*Apart* is the largest difference between headcount and the plain loop in one format.\n\n"
        f"{table(header, rows, left=(0, 1))}\n\n`python benchmarks/precision.py`\n"
    )


def long_section(result: dict[str, Any]) -> str:
    """What `long_prompts.py` measured: long prompts against plain hooks."""
    header = ["shape", "tokens", "head sets", "", "plain: ms", "headcount: ms", "times as fast"]
    header += ["further head sets", "plain: GiB", "times the memory", "apart"]
    rows = []
    for row in result["rows"]:
        each, further = row["seconds per head set"], row.get("times as fast per further head set")
        cells = [row["shape"], f"{row['tokens']:,}", str(row["head sets"])]
        cells += [LONG_PARTS[row["part"]].format(row.get("late positions"))]
        cells += [f"{1e3 * each[PLAIN]:.1f}", f"{1e3 * each[OURS]:.2f}"]
        known = further is not None and further > 0  # else the times were too noisy to tell
        cells += [f"{row['times as fast']:.2f} ×", f"{further:.0f} ×" if known else "–"]
        cells += [f"{row['peak bytes'][PLAIN] / 2**30:.1f}", f"{row['times the memory']:.2f} ×"]
        rows.append([*cells, f"{row['apart']:.1e}"])
    machine = result["machine"]
    return (
        f"## Long prompts on {machine.get('accelerator') or machine['processor']}\n\n"
        f"Random weights in the published shapes, {result['dtype']}. Plain hooks run one prompt "
        "and one head set in each pass, with the last logit only; times are per head set, those of "
        "headcount from texts to values, with all that is done once for all head sets. *Further "
        "head sets* is the ratio without that. *Memory* is the peak, weights included; *apart* the "
        "largest difference of two log-probabilities.\n\n"
        f"{table(header, rows, left=(0, 3))}\n\n"
        f"- Versions: {', '.join(f'{n} {v}' for n, v in result['versions'].items())}\n"
        f"- Command: `{result['command']}`\n"
    )


def section(ledger: dict[str, Any]) -> str:
    """One run of the ledger, with everything that is needed to repeat it."""
    m = ledger["machine"]
    machine = f"{m['processor']}, {m['cores']} cores, {m['memory_bytes'] / 2**30:.0f} GiB"
    if m.get("accelerator"):
        machine = f"{m['accelerator']}; {machine}"
    parts = [f"## On {place(ledger)}\n"]
    parts += [race_text(race, ledger) for race in ledger["races"] if race["rows"]]
    facts = [
        f"Machine: {machine}; {m['system']}; load before the start {m['load_at_start']}",
        "Versions: " + ", ".join(f"{name} {v}" for name, v in ledger["versions"].items()),
        f"Measured on {ledger['date']}; torch threads: {ledger['threads']}",
        *([ledger["note"]] if "note" in ledger else []),
        f"Command: `{ledger['command']}`",
    ]
    return "\n".join([*parts, *(f"- {fact}" for fact in facts), ""])


def place(ledger: dict[str, Any]) -> str:
    """The device, in words."""
    if ledger["device"] == "cpu":
        return f"{ledger['threads']} CPU thread{'s' * (ledger['threads'] > 1)}"
    title = f", {ledger['title']}" if "title" in ledger else ""
    return f"one {ledger['machine']['accelerator']}{title}"


def race_text(race: dict[str, Any], ledger: dict[str, Any]) -> str:
    """One table with its heading."""
    part = race["part"]
    if part == "exact":
        most = max(row["difference"] for row in race["rows"])
        names = ", ".join(row["name"] for row in race["rows"])
        return (
            f"{race['model']} in float32, {race['sets']} head sets: {names} differ by at most "
            f"{most:.0e} in a log-probability.\n"
        )
    body = {"decoding": decoding_table, "memory": memory_table, "gates": gates_table}
    make: Callable[[dict[str, Any], bool], str] = body.get(part, sweep_table)
    missing = "".join(f"\nNot measured: {n} ({w})\n" for n, w in race.get("missing", {}).items())
    text = make(race, ledger["device"] == "cpu")
    return f"### {race['model']}: {TITLES[part]}\n\n{size(race)}\n\n{text}\n{missing}"


def size(race: dict[str, Any]) -> str:
    """How much was run, in a sentence."""
    if race["part"] == "gates":
        return (
            f"A Llama of {race['layers']} layers with random weights, {race['updates']} updates in "
            f"each stage, batches of {race['batch']}, {race['seeds']} seeds."
        )
    sets = f"{race['sets']} head set{'s' * (race['sets'] != 1)}"
    if race.get("all_sets", 0) > race["sets"]:
        sets = f"{race['sets']} of {race['all_sets']} head sets"
    elif race.get("all_sets"):
        sets = f"All {race['sets']} head sets"
    tokens = f"{race['prompts']} prompts of {race['tokens']} tokens"
    if race.get("shared"):
        tokens += f", of which the first {race['shared']} are shared"
    new = f", {race['new']} new tokens" if "new" in race else ""
    return f"{sets}, {tokens}{new}; {race['dtype']}."


def basis(race: dict[str, Any]) -> str:
    """The rounds that are compared: the first where somebody had no other, else all others."""
    rows = [row for row in race["rows"] if row.get("agrees")]
    return "first_seconds" if any(not row["seconds"] for row in rows) else "seconds"


def sweep_table(race: dict[str, Any], on_cpu: bool) -> str:
    """Times, numbers and memory."""
    rows = {row["key"]: row for row in race["rows"]}
    by = basis(race)
    apart = any(row.get("first_seconds") is not None for row in rows.values())
    header = ["", *(["first round", "later ones"] if apart else ["seconds"])]
    header += ["rounds", "÷ plain", "× headcount"]
    header += ["CPU seconds", "× headcount"] if on_cpu else []
    header += ["difference", "set-up", "peak memory"]
    cells = []
    for row in rows.values():
        line = [row["name"]]
        line += [_seconds(row, "first_seconds")] * apart + [_seconds(row, "seconds")]
        line += [str(apart + len(row["seconds"])), _ratio(rows, row, PLAIN, by)]
        line.append(_ratio(rows, row, OURS, by))
        if on_cpu:
            line += [_seconds(row, "cpu_seconds"), _ratio(rows, row, OURS, "cpu_seconds")]
        line += [f"{row['difference']:.0e}", _setup(row), _memory(row)]
        cells.append(line)
    return table(header, cells)


def decoding_table(race: dict[str, Any], on_cpu: bool) -> str:
    """Times and how many texts are equal."""
    rows = {row["key"]: row for row in race["rows"]}
    header = ["", "seconds", "rounds", "÷ plain", "× headcount"]
    header += ["CPU seconds", "× headcount"] if on_cpu else []
    header += ["equal texts", "equal first tokens"] + ([] if on_cpu else ["peak memory"])
    cells = []
    for row in rows.values():
        line = [row["name"], _seconds(row, "seconds") if row["agrees"] else "other texts"]
        line += [str(len(row["seconds"])), _ratio(rows, row, PLAIN), _ratio(rows, row, OURS)]
        if on_cpu:
            line += [_seconds(row, "cpu_seconds"), _ratio(rows, row, OURS, "cpu_seconds")]
        equal = "–" if row["equal_texts"] is None else f"{row['equal_texts']} of {row['texts']}"
        first = "–" if row["equal_first"] is None else f"{100 * row['equal_first']:.0f} %"
        line += [equal, first] + ([] if on_cpu else [_memory(row)])
        cells.append(line)
    return table(header, cells)


def memory_table(race: dict[str, Any], on_cpu: bool) -> str:
    """What a sweep of many rows takes, on the whole card and on a part of it."""
    header = ["", "peak", "of which weights", "allowed", "difference"]
    cells = []
    for row in race["rows"]:
        allowed = "–" if row["cap_bytes"] is None else f"{row['cap_bytes'] / 2**30:.1f} GiB"
        line = [row["way"], f"{row['peak_bytes'] / 2**30:.1f} GiB"]
        line += [f"{row['weights_bytes'] / 2**30:.1f} GiB", allowed, f"{row['difference']:.0e}"]
        cells.append(line)
    return table(header, cells)


def gates_table(race: dict[str, Any], on_cpu: bool) -> str:
    """CPU seconds of a seed, and how alike the gates are."""
    header = ["schedule", "package's autocast", "package", "headcount", "headcount, all seeds"]
    header += ["× headcount", "lowest correlation", "same side of ½"]
    cells = []
    groups: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for row in race["rows"]:
        groups.setdefault((row["variant"], row["autocast"]), []).append(row)
    for (variant, autocast), rows in groups.items():
        one = rows[0]
        theirs, ours = one["package_cpu_s_per_seed"], one["headcount_cpu_s_all_seeds"]
        cells.append(
            [
                variant,
                "on" if autocast else "off",
                f"{theirs:.2f} s",
                f"{one['headcount_cpu_s_per_seed']:.2f} s",
                f"{ours:.2f} s",
                f"{theirs * race['seeds'] / ours:.2f}",
                f"{min(row['lowest_of_seeds'] for row in rows):.4f}",
                f"{100 * min(row['same_side_of_half'] for row in rows):.1f} %",
            ]
        )
    note = "CPU seconds for one seed, and for all seeds side by side, which headcount does."
    return f"{table(header, cells, left=(0, 1))}\n\n{note}"


def growth_section(result: dict[str, Any]) -> str:
    """How time and memory grow, by `growth.py`."""
    header = ["what grows", "from", "to", "slope of time", "slope of the work", "memory added"]
    cells = [
        [
            axis["name"],
            f"{axis['points'][0]['x']:g}",
            f"{axis['points'][-1]['x']:g}",
            f"{axis['time_slope']:.2f}",
            f"{axis['work_slope']:.2f}",
            " → ".join(f"{axis['points'][i]['memory'] / 1e6:.0f}" for i in (0, -1)) + " MB",
        ]
        for axis in result["axes"]
    ]
    lines = [
        "## How cost grows\n",
        "![How cost grows](images/growth.png)\n",
        "Slopes are of log time, or log work, against the log of what grows: 1 is in proportion.",
        "The work is counted: multiplications and additions of the matrix products that the plan",
        "runs. Nothing grows faster than its work where the first slope is at most the second.",
        "*Memory added* is that of the sweep itself, above model and libraries.\n",
        table(header, cells),
        "",
        f"- Versions: {', '.join(f'{n} {v}' for n, v in result['versions'].items())}",
        f"- Measured on {result['date']}; {result['machine']['processor']}, torch threads: "
        f"{result['threads']}",
        f"- Command: `{result['command']}`",
        "",
    ]
    return "\n".join(lines)


def passes_section(result: dict[str, Any]) -> str:
    """What `gpu.py` measured: whole gated passes on one GPU."""
    rows = result["rows"]
    lines = [
        f"## Gated passes on one {result['device']}",
        "",
        "512 prompts × 32 tokens in bf16, every head of every row with a gate of its own. *Share*",
        "is that of the card's own rate in a large matrix product,",
        f"{result['rate'] / 1e12:.0f} TFLOP/s in the same run; *error* is the largest one of a",
        "logit against float32, relative to the largest logit. Plain hooks compute all logits,",
        "headcount those that are scored; each is credited with what it computes. Compiling is",
        "done where a sweep is long enough to repay it; without it a small model waits for Python.",
        "",
        table(
            ["shape", "way", "ms", "share", "error"],
            [
                [
                    row["shape"],
                    row["way"],
                    f"{row['ms']:.1f}",
                    f"{100 * row['share']:.0f} %",
                    f"{row['error']:.3f}",
                ]
                for row in rows
            ],
            left=(0, 1),
        ),
        "",
        f"- Versions: {', '.join(f'{n} {v}' for n, v in result['versions'].items())}",
        f"- Command: `{result['command']}`",
        "",
    ]
    return "\n".join(lines)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """A Markdown table; columns in `left` are words, the others numbers."""
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * w if i in left else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    lines = [
        " | ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        for cells in (header, rule, *rows)
    ]
    return "\n".join(f"| {line} |" for line in lines)


def _time(row: dict[str, Any], key: str = "seconds") -> float | None:
    """The median of some rounds; None where there was none."""
    times = row.get(key)
    if isinstance(times, list):
        return statistics.median(times) if times else None
    return times


def _seconds(row: dict[str, Any], key: str) -> str:
    if not row["agrees"]:
        return "other numbers"
    time = _time(row, key)
    return "–" if time is None else f"{time:.2f}"


def _ratio(
    rows: dict[str, dict[str, Any]], row: dict[str, Any], base: str, key: str = "seconds"
) -> str:
    if base not in rows or not row["agrees"]:
        return "–"
    time, against = _time(row, key), _time(rows[base], key)
    return f"{time / against:.2f}" if time and against else "–"


def _setup(row: dict[str, Any]) -> str:
    return "–" if row["setup_seconds"] is None else f"{row['setup_seconds']:.1f} s"


def _memory(row: dict[str, Any]) -> str:
    if not row.get("peak_bytes"):
        return "–"
    grown = (row["peak_bytes"] - row["before_bytes"]) / 1e6
    return f"{row['peak_bytes'] / 1e6:.0f} MB (+{grown:.0f})"


if __name__ == "__main__":
    write_page()
