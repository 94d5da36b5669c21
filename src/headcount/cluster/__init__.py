"""Many machines: workers on a Ray cluster that measure what this process asks."""

from headcount.cluster.join import cluster

__all__ = ["cluster"]
