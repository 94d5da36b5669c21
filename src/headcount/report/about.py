"""What a page says about the studies: the question, where it comes from, and its pictures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class About:
    """The question of a study, and the paper that asked it."""

    question: str
    source: str = ""


STUDIES = {
    "masked-heads": About(
        "Do the heads that rank highest for a skill matter more than as many random ones?",
        "After “Cognitive Mirrors” (Ma et al., NeurIPS 2025), Figure 3.",
    ),
    "heads-kept": About(
        "How many heads must stay to explain what the model does?",
        "After “Sparse Attention Post-Training for Mechanistic Interpretability” (Draye et al., "
        "2025).",
    ),
    "head-roles": About(
        "Which heads help with a task, which do not matter, and which are in the way?",
        "After “Causal Head Gating” (Nam et al., NeurIPS 2025), Figure 2.",
    ),
    "token-insertion": About(
        "What do meaningless tokens in a prompt do to the answers, and to attention?",
        "After “Meaningless Tokens, Meaningful Gains” (Shi et al., 2025), Figure 10.",
    ),
    "curve": About("What is lost as more and more heads are masked?"),
}
CAPTIONS = {
    "rankings": "Accuracy under other rankings of the heads.",
    "zero": "The same with zero in the place of absent heads.",
    "plain": "The same from the whole model instead of soft gates.",
    "roles": "The role of each head, by the mean of its scores.",
    "sweep-length": "Accuracy against the length of the insert.",
    "sweep-position": "Accuracy against the place of the insert.",
}
# Each verdict, and the sign beside its word.
VERDICTS = {
    "supported": "✓",
    "refuted": "✗",
    "undecided": "?",
    "not comparable": "≠",
    "not tested": "–",
}


def about(study: str) -> About:
    """What is known about a study; a study of one's own is called by its name."""
    return STUDIES.get(study, About(study))
