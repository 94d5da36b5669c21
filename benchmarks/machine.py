"""What a measurement ran on, and how much memory it took."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory and accelerator; the load shows whether the machine was idle."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(),
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def describe_versions(distributions: list[str]) -> dict[str, str]:
    """The versions of Python and of those of the packages that are there."""
    found = {"Python": platform.python_version()}
    for name in dict.fromkeys(["torch", "transformers", "numpy", *distributions]):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # not there, or on the path without having been installed
            module = sys.modules.get(name.replace("-", "_"))
            if module is not None:
                found[name] = str(getattr(module, "__version__", "unknown"))
    return found


class PeakMemory:
    """The largest amount of memory in use since `start`, of this process or on its GPU."""

    def __init__(self, device: str) -> None:
        self.on_gpu = device.startswith("cuda")
        self.before = 0

    def start(self) -> None:
        """Forget the peak of loading and setting up."""
        if self.on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()
            return
        if sys.platform == "linux":
            with contextlib.suppress(AttributeError, OSError):  # other C libraries have no such
                ctypes.CDLL(None).malloc_trim(0)  # give back what setting up has freed
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self.before = self.read()

    def read(self) -> int:
        """The peak in bytes."""
        if self.on_gpu:
            return torch.cuda.max_memory_allocated()
        if sys.platform == "linux":
            # Not ru_maxrss: a new process inherits that of the one that started it.
            status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
            return 1024 * next(int(line.split()[1]) for line in status if "VmHWM" in line)
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
