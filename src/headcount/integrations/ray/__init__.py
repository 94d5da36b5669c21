"""An executor whose workers are processes of a Ray cluster, on one machine or many."""

from headcount.integrations.ray.connect import ray_executor

__all__ = ["ray_executor"]
