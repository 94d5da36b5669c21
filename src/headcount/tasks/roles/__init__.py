"""The tasks of the study of head roles: Syntax, Common Sense and Math, with one solved item each.

The prompt shape is that of Nam et al. ("Causal Head Gating", NeurIPS 2025). The items of the first
three are our own, and so under the licence of headcount; the loaders read files of yours.
"""

from headcount.tasks.roles.arithmetic import arithmetic
from headcount.tasks.roles.common_sense import common_sense
from headcount.tasks.roles.commonsense_qa import commonsense_qa
from headcount.tasks.roles.gsm8k import gsm8k
from headcount.tasks.roles.syntax import syntax

__all__ = ["arithmetic", "common_sense", "commonsense_qa", "gsm8k", "syntax"]
