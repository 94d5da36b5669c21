"""Many machines: workers on a Ray cluster that measure what this process asks."""

from headcount.integrations.ray.join import cluster

__all__ = ["cluster"]
