"""How many workers a cluster has room for, and what each of them takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError
from headcount.models.model import Model

CORES = 4  # of a worker without a GPU, where there are many


@dataclass(frozen=True)
class Size:
    """Workers, and the share of the cluster that each takes."""

    workers: int
    threads: int
    cpus: float
    gpus: float

    @property
    def wish(self) -> str:
        """What one worker needs, in words."""
        what = f"{self.cpus:g} CPU{'s' if self.cpus > 1 else ''}"
        return f"{what} and {self.gpus:g} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else what


def size_for(ray: Any, model: Model, workers: int | None, threads: int | None) -> Size:
    """Fit so many workers (as many as there is room for) into the cluster.

    On GPUs each has one of its own, or an equal share of them where a device map spreads the model.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    if model.device.type == "cuda":
        spread = (model.origin or {}).get("device_map") is not None
        return _on_gpus([int(node.get("GPU", 0)) for node in nodes], spread, workers, threads)
    if sum(cpus) < 1:
        raise HeadcountError("The Ray cluster has no CPUs to run workers on.")
    if workers is None:
        workers = max(min(2, sum(cpus)), sum(max(1, some // CORES) for some in cpus if some))
    share = sum(cpus) / workers
    threads = threads or max(1, min(int(share), max(cpus)))
    return Size(workers, threads, share if share < 1 else min(threads, int(share), max(cpus)), 0)


def _on_gpus(gpus: list[int], spread: bool, workers: int | None, threads: int | None) -> Size:
    total = sum(gpus)
    if workers is None:
        workers = max(1, sum(1 for some in gpus if some) if spread else total)
    if workers > total:
        raise HeadcountError(
            f"{workers} worker{'s' if workers > 1 else ''} on GPUs need as many GPUs, and the Ray "
            f"cluster has {total or 'none'}: ask for fewer --workers, or use --device cpu."
        )
    each = min(total // workers, max(gpus)) if spread else 1
    return Size(workers, threads or 1, 1, each)
