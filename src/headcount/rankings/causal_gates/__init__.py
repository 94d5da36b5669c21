"""Causal gates: learned gates that split heads into facilitating, irrelevant, interfering."""

from headcount.rankings.causal_gates.result import ROLES, CausalGates

__all__ = ["ROLES", "CausalGates"]
