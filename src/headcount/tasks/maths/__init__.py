"""Problems with verifiable answers: an instruction, a problem, and an answer in a box."""

from headcount.tasks.maths.problem_files import math_500, problems
from headcount.tasks.maths.word_problems import word_problems

__all__ = ["math_500", "problems", "word_problems"]
