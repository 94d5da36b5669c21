"""Many machines: an executor whose workers are processes of a Ray cluster."""

from headcount.integrations.ray.connect import ray_executor

__all__ = ["ray_executor"]
