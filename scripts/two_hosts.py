"""Two hosts on one machine, in network namespaces: what a measurement on a Ray cluster survives.

    python scripts/two_hosts.py                    # as root on Linux; some fifteen minutes
    python scripts/two_hosts.py --only plain killed
    python scripts/two_hosts.py --page             # only write the table of the page again

Each host has its own address on a bridge, its own loopback, process numbers, name, shared memory
and home folder; both read the same Python and the same model. Host 1 is the head of a Ray cluster,
and each host has one CPU for one worker. Every experiment ranks the heads of a small random model
by ablation, compares the scores with those of one process without a cluster, and notes what it saw
in docs/results/two-hosts.json, from which docs/many-machines.md has its table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUTCOME = ROOT / "docs" / "results" / "two-hosts.json"
PAGE = ROOT / "docs" / "many-machines.md"
BEGIN, END = "<!-- two hosts: written by scripts/two_hosts.py -->", "<!-- end of two hosts -->"
BRIDGE, NETWORK, PORT = "hcbr0", "10.77.0", 6379
ADDRESS = f"{NETWORK}.1:{PORT}"
LONGEST = 420.0  # seconds: a command that takes longer has hung
GONE = 60.0  # seconds within which no process of a command may be left after its end
RAY = Path(sys.executable).with_name("ray")
# The first process of a host: it reaps the others, as init does.
INIT = "import signal, time; signal.signal(signal.SIGCHLD, signal.SIG_IGN); time.sleep(1e6)"


def sh(*words: object, check: bool = True) -> str:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


@dataclass(eq=False)
class Host:
    """One host: a network namespace, and others for processes, files and the host's name."""

    number: int
    private: Path  # on each host a folder of its own, which only that host sees under this name
    sources: Path

    def __post_init__(self) -> None:
        self.name, self.link = f"hc-host-{self.number}", f"hcv{self.number}"
        self.address = f"{NETWORK}.{self.number}"
        self.root = Path(f"{self.private}-{self.number}")  # that folder, seen from outside
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        sh("ip", "netns", "add", self.name)
        sh("ip", "link", "add", self.link, "type", "veth", "peer", "eth0", "netns", self.name)
        sh("ip", "link", "set", self.link, "master", BRIDGE, "up")
        inside = ("ip", "-n", self.name)
        sh(*inside, "link", "set", "lo", "up")
        sh(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        sh(*inside, "link", "set", "eth0", "up")
        steps = f"""
            hostname {self.name} && mount --bind {self.root} {self.private}
            mkdir {self.private}/ray
            mkdir -p /tmp/ray && mount --bind {self.private}/ray /tmp/ray
            mount -t tmpfs none /dev/shm && touch {self.private}/ready
            exec {sys.executable} -S -c '{INIT}'"""
        spaces = ["--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        words = ["ip", "netns", "exec", self.name, "unshare", *spaces, "sh", "-e", "-c", steps]
        self.outer = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        wait_for(lambda: (self.root / "ready").exists(), 10, f"{self.name} did not start")

    @cached_property
    def init(self) -> int:
        """The number, outside, of the host's first process."""
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children")
        wait_for(lambda: bool(children.read_text().split()), 5, f"{self.name} has no process")
        return int(children.read_text().split()[0])

    def run(self, *words: object, **environment: str) -> subprocess.Popen[str]:
        """Start a command on this host."""
        own = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.private),
            "PYTHONPATH": str(self.sources),
            "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            **environment,
        }
        enter = ["nsenter", "-t", self.init, *(f"-{space}" for space in "mnpui"), "env", "-i"]
        enter += ["-C", "/", *(f"{name}={value}" for name, value in own.items())]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(list(map(str, (*enter, *words))), start_new_session=True, **pipes)

    def start_ray(self) -> None:
        """Start Ray here: the head on host 1; the other joins it."""
        head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        to = head if self.number == 1 else [f"--address={ADDRESS}"]
        to += [f"--node-ip-address={self.address}", "--num-cpus=1"]
        started = self.run(RAY, "start", *to, "--object-store-memory=100000000")
        out, err = started.communicate(timeout=120)
        if started.returncode:
            raise RuntimeError(f"ray start on {self.name}: {out}{err}")

    def cut(self, off: bool = True) -> None:
        """Cut the host off from the network, or connect it again."""
        sh("ip", "link", "set", self.link, "down" if off else "up")

    def kill(self) -> None:
        """Kill everything on the host at once; with its link down, nobody is told."""
        self.cut()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        self.outer.wait(30)

    @property
    def working(self) -> list[str]:
        """The processes of headcount on this host: commands and workers."""
        if self.outer.poll() is not None:
            return []
        space, found = os.readlink(f"/proc/{self.init}/ns/pid"), []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                ours = "headcount" in words.split(" --")[0] or words.startswith("ray::Worker")
                if ours and os.readlink(process / "ns" / "pid") == space:
                    found.append(words[:80])
        return found

    def remove(self) -> None:
        """Take the host away, with all that runs on it."""
        if self.outer.poll() is None:
            self.kill()
        sh("ip", "link", "del", self.link, check=False)
        sh("ip", "netns", "del", self.name, check=False)


def wait_for(true: Callable[[], bool], seconds: float, else_: str) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(else_)
        time.sleep(0.1)


@dataclass(eq=False)
class Trial:
    """A cluster of two hosts, the commands that were run on it, and what was seen."""

    work: Path
    hosts: list[Host] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)

    @contextlib.contextmanager
    def cluster(self, sources: Path | None = None) -> Iterator[Trial]:
        """Two hosts with Ray; `sources` are those of headcount on host 2, if they are others."""
        sh("ip", "link", "add", BRIDGE, "type", "bridge")
        sh("ip", "link", "set", BRIDGE, "up")
        try:
            for number in (1, 2):
                own = self.work / "src" if number == 1 else (sources or self.work / "src")
                self.hosts.append(Host(number, self.work / "private", own))
            for host in self.hosts:
                host.start_ray()
            yield self
        finally:
            for host in self.hosts:
                host.remove()
            sh("ip", "link", "del", BRIDGE, check=False)

    def words(self, *, ray: bool = True, model: str = "model") -> list[object]:
        words = [sys.executable, "-m", "headcount.cli", "rank", "--ranking", "ablation", "--quiet"]
        words += ["--model", self.work / model, "--task", self.work / "task.jsonl", "--json"]
        words += ["--store", self.store, "--out", self.work / "private" / "scores.json"]
        return [*words, "--device", "cpu", *(["--ray", ADDRESS, "--workers", 2] if ray else [])]

    @property
    def store(self) -> Path:
        return self.work / "private" / "store.sqlite"

    def stored(self, host: Host) -> int:
        """How many values the store on this host holds."""
        path = host.root / self.store.name
        if not path.exists():
            return 0
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            try:
                return int(store.execute("SELECT count(*) FROM measurements").fetchone()[0])
            except sqlite3.OperationalError:  # its tables are being made
                return 0

    def begin(self, host: Host, share: float = 0.15, **options: Any) -> subprocess.Popen[str]:
        """Start the ranking on a host and wait until a share of its values is stored."""
        command, wanted = host.run(*self.words(**options)), share * self.expected["values"]
        wait_for(
            lambda: self.stored(host) > wanted or command.poll() is not None, 180, "no value came"
        )
        if command.poll() is not None:
            raise RuntimeError(f"ended too early: {command.communicate()}")
        self.seen["values stored before"] = self.stored(host)
        return command

    def end(self, host: Host, command: subprocess.Popen[str]) -> None:
        """Wait for a command's end, and note how it ended and what it left."""
        start = time.monotonic()
        try:
            _, said = command.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(command.pid, signal.SIGKILL)
            said = "(hung, and was killed)"
        self.seen["seconds to the end"] = round(time.monotonic() - start)
        self.seen["exit code"] = command.returncode
        # A random model is always at chance, which is no news.
        lines = [line for line in said.splitlines() if line.strip() and "at chance" not in line]
        self.seen["said"] = [line.replace(str(self.work), "…") for line in lines[-6:]]
        self.seen["values stored after"] = self.stored(host)
        self.compare(host)
        with contextlib.suppress(RuntimeError):
            wait_for(lambda: not any(h.working for h in self.hosts), GONE, "")
        self.seen["processes left"] = [words for h in self.hosts for words in h.working]

    def compare(self, host: Host) -> None:
        """Whether the scores are those of one process, and each value is stored once."""
        path = host.root / "scores.json"
        equal = path.exists() and json.loads(path.read_text())["values"] == self.expected["scores"]
        self.seen["scores equal"] = equal
        self.seen["complete"] = self.stored(host) == self.expected["values"]

    def again(self, host: Host) -> None:
        """The same command, in one process without a cluster: it continues from the store."""
        before = self.stored(host)
        done = host.run(*self.words(ray=False))
        _, said = done.communicate(timeout=LONGEST)
        if done.returncode:
            raise RuntimeError(said)
        self.seen["then measured in one process"] = self.stored(host) - before
        self.compare(host)

    @cached_property
    def expected(self) -> dict[str, Any]:
        """Scores and number of values of one process without a cluster."""
        loaded: dict[str, Any] = json.loads((self.work / "expected.json").read_text())
        return loaded


def plain(trial: Trial) -> None:
    """A ranking on both hosts; the store is on host 1 alone."""
    with trial.cluster():
        first, second = trial.hosts
        command = trial.begin(first, 0.3)
        trial.seen["hosts at work"] = sum(bool(host.working) for host in trial.hosts)
        trial.end(first, command)
        files = [p.name for p in second.root.rglob("*sqlite*") if "ray" not in p.parts]
        trial.seen["stores on host 2"] = files


def asked_from_host_2(trial: Trial) -> None:
    """The command runs on host 2, which is not the head; the store is there alone."""
    with trial.cluster():
        first, second = trial.hosts
        trial.end(second, trial.begin(second, 0.3))
        files = [p.name for p in first.root.rglob("*sqlite*") if "ray" not in p.parts]
        trial.seen["stores on host 1"] = files


def short_cut(trial: Trial) -> None:
    """Host 2 is cut off for 8 seconds in mid-run."""
    _cut(trial, 8)


def long_cut(trial: Trial) -> None:
    """Host 2 is cut off for 90 seconds in mid-run."""
    _cut(trial, 90)


def _cut(trial: Trial, seconds: float) -> None:
    with trial.cluster():
        first, second = trial.hosts
        command = trial.begin(first)
        second.cut()
        time.sleep(seconds)
        second.cut(off=False)
        trial.seen["still running when host 2 was back"] = command.poll() is None
        trial.end(first, command)


def rejoined(trial: Trial) -> None:
    """Host 2 is killed in mid-run; an equal host with its address joins the cluster again."""
    with trial.cluster():
        first, second = trial.hosts
        command = trial.begin(first, 0.05)
        second.remove()
        trial.hosts[1] = Host(2, second.private, second.sources)
        trial.hosts[1].start_ray()
        with contextlib.suppress(RuntimeError):
            wait_for(lambda: bool(trial.hosts[1].working) or command.poll() is not None, 200, "")
        trial.seen["the new host works"] = bool(trial.hosts[1].working)
        trial.end(first, command)


def killed(trial: Trial) -> None:
    """Host 2 is killed in mid-run, without a word to the others."""
    with trial.cluster():
        first, second = trial.hosts
        command = trial.begin(first)
        second.kill()
        trial.end(first, command)


def head_killed(trial: Trial) -> None:
    """Host 1, the head, is killed in mid-run; the command runs on host 2."""
    with trial.cluster():
        first, second = trial.hosts
        command = trial.begin(second)
        first.kill()
        trial.end(second, command)
        trial.again(second)


def asking_host_cut(trial: Trial) -> None:
    """The command runs on host 2, which is cut off from the head in mid-run, for good."""
    with trial.cluster():
        _, second = trial.hosts
        command = trial.begin(second)
        second.cut()
        trial.end(second, command)
        trial.again(second)


def asking_host_killed(trial: Trial) -> None:
    """Host 2, where the command runs, is killed in mid-run: the worker on host 1 must end."""
    with trial.cluster():
        first, second = trial.hosts
        command = trial.begin(second)
        second.kill()
        start = time.monotonic()
        with contextlib.suppress(RuntimeError):
            wait_for(lambda: not first.working, 300, "")
        trial.seen["seconds until host 1 was idle"] = round(time.monotonic() - start)
        trial.seen["processes left"] = first.working
        command.communicate()


def other_headcount(trial: Trial) -> None:
    """Host 2 has another version of headcount."""
    sources = trial.work / "other"
    shutil.copytree(trial.work / "src", sources)
    init = sources / "headcount" / "__init__.py"
    text = init.read_text()
    init.write_text(text + '\n__version__ = "9.9.9"\n')
    with trial.cluster(sources=sources):
        first = trial.hosts[0]
        trial.end(first, first.run(*trial.words()))


def other_model(trial: Trial) -> None:
    """Host 2 has other weights under the same name."""
    with trial.cluster():
        for host, source in zip(trial.hosts, ("model", "other-model"), strict=True):
            shutil.copytree(trial.work / source, host.root / "model")
        first = trial.hosts[0]
        trial.end(first, first.run(*trial.words(model="private/model")))


def no_model(trial: Trial) -> None:
    """Host 2 lacks the folder of the model."""
    with trial.cluster():
        first = trial.hosts[0]
        shutil.copytree(trial.work / "model", first.root / "model")
        trial.end(first, first.run(*trial.words(model="private/model")))


EXPERIMENTS: dict[str, Callable[[Trial], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        plain,
        asked_from_host_2,
        short_cut,
        long_cut,
        killed,
        rejoined,
        head_killed,
        asking_host_cut,
        asking_host_killed,
        other_headcount,
        other_model,
        no_model,
    )
}


def prepare(work: Path, examples: int) -> None:
    """The sources as they are, a model, another of the same shape, a task, one process's scores."""
    shutil.copytree(ROOT / "src", work / "src")
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]
    from tiny import tiny_model
    from toy import toy_task, toy_tokenizer

    sizes = {"hidden_size": 256, "head_dim": 16, "intermediate_size": 512}
    heads = {"num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 16}
    for seed, name in enumerate(("model", "other-model")):
        tiny_model("llama", seed=seed, **sizes, **heads).save_pretrained(work / name)
        toy_tokenizer().save_pretrained(work / name)
    lines = [
        {"id": e.id, "prompt": e.prompt, "target": e.target, "content": e.content}
        for e in toy_task(examples).examples
    ]
    (work / "task.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (work / "private").mkdir()
    trial = Trial(work)
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(work / "src")}
    words = [str(word) for word in trial.words(ray=False)]
    subprocess.run(words, env=settings, check=True, stdout=subprocess.DEVNULL)
    scores = json.loads((work / "private" / "scores.json").read_text())["values"]
    with contextlib.closing(sqlite3.connect(trial.store)) as store:
        values = store.execute("SELECT count(*) FROM measurements").fetchone()[0]
    shutil.rmtree(work / "private")
    (work / "private").mkdir()
    (work / "expected.json").write_text(json.dumps({"scores": scores, "values": values}))


def outcome(seen: dict[str, Any]) -> str:
    """What an experiment saw, in words."""
    said = [line.replace("|", "/") for line in seen.get("said", [])]
    if seen.get("exit code") == 2 and not seen["values stored after"]:
        return f"Refused after {seen['seconds to the end']} s: “{said[-1]}”"
    parts, values = [], seen["values"]
    if "seconds until host 1 was idle" in seen:
        parts.append(f"Host 1 was idle after {seen['seconds until host 1 was idle']} s")
    elif seen["exit code"] == 0:
        parts.append(f"Ended well {seen['seconds to the end']} s later")
    else:
        code, after = seen["exit code"], seen["seconds to the end"]
        parts.append(f"Ended after {after} s with exit code {code}: “{said[-1] if said else ''}”")
    if "then measured in one process" in seen:
        kept, rest = seen["values stored after"], seen["then measured in one process"]
        parts.append(f"{kept:,} values were kept, and one process measured the other {rest:,}")
    if seen.get("scores equal") and seen["complete"]:
        parts.append(f"all {values:,} values are there, once, and the scores are equal")
    if (other := seen.get("stores on host 1", seen.get("stores on host 2"))) is not None:
        parts.append("the other host has a store" if other else "the other host has no store")
    if "the new host works" in seen:
        works = "got work" if seen["the new host works"] else "got no work"
        parts.append(f"the new host {works}")
    left = len(seen["processes left"])
    parts.append("nothing is left running" if not left else f"{left} processes are left")
    return "; ".join(parts) + "."


def table() -> str:
    """The table of the page."""
    known = json.loads(OUTCOME.read_text())
    rows = [f"| {seen['what']} | {outcome(seen)} |" for seen in known["experiments"].values()]
    return "\n".join(["| tried | seen |", "| --- | --- |", *rows])


def write_page() -> None:
    """Put the table between its two marks."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}")


def main() -> int:
    formatter = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, metavar="NAME", default=[])
    parser.add_argument("--examples", type=int, default=1200)
    parser.add_argument("--page", action="store_true", help="write the page's table, run nothing")
    arguments = parser.parse_args()
    if not arguments.page:
        if sys.platform != "linux" or os.geteuid() or not shutil.which("ip"):
            needs = "Linux, root and iproute2, to make network namespaces"
            print(f"two_hosts.py needs {needs}.", file=sys.stderr)
            return 2
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the hosts are removed
        run(arguments.only or list(EXPERIMENTS), arguments.examples)
    write_page()
    return 0


def run(names: list[str], examples: int) -> None:
    """Carry out the experiments, and keep what each saw."""
    with tempfile.TemporaryDirectory(prefix="hc-hosts-") as folder:
        work = Path(folder)
        prepare(work, examples)
        for name in names:
            trial = Trial(work)
            start = time.monotonic()
            print(f"{name}: {EXPERIMENTS[name].__doc__}", flush=True)
            try:
                EXPERIMENTS[name](trial)
            except RuntimeError as error:  # the experiment could not be made; the others can
                print(f"{name}: {error}", file=sys.stderr)
                continue
            trial.seen["seconds"] = round(time.monotonic() - start)
            print(json.dumps(trial.seen, indent=2), flush=True)
            keep(name, trial.seen, trial.expected["values"])


def keep(name: str, seen: dict[str, Any], values: int) -> None:
    """Add what an experiment saw to the outcome."""
    known = json.loads(OUTCOME.read_text()) if OUTCOME.exists() else {"experiments": {}}
    packages = ("ray", "torch", "transformers")
    known["versions"] = {"Python": platform.python_version(), **{p: version(p) for p in packages}}
    known["experiments"][name] = {"what": EXPERIMENTS[name].__doc__, "values": values, **seen}
    order = [name for name in EXPERIMENTS if name in known["experiments"]]
    known["experiments"] = {name: known["experiments"][name] for name in order}
    OUTCOME.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
