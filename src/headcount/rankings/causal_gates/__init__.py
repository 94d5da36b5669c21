"""Causal gates: learned gates that tell facilitating, irrelevant and interfering heads apart."""

from headcount.rankings.causal_gates.result import ROLES, CausalGates

__all__ = ["ROLES", "CausalGates"]
