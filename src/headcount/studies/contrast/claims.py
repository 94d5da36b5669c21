"""The claims of `contrast`, judged on skills that were left out of the fits.

Margins are fixed here, before anything is measured. The kept form *stays* if the log-probability of
the answer falls by less than half a nat for each token (the fit is rewarded for a rise, so a rise
is no failure), and if its accuracy, under the binary head sets, changes by less than a tenth in
either direction. The other form is *forgotten* if its log-probability falls more than under random
heads by more than half a nat for each token, and more than under random heads of the same layers:
switching off any heads lowers it. The gates are *selective* if this form loses more than the kept
one, by half a nat more than under random heads: random heads may destroy one form as much, but not
it alone. Claims about one kept form hold in every skill.
"""

from __future__ import annotations

from collections.abc import Sequence

from headcount.claims import Claim, above_chance
from headcount.stats import Estimate
from headcount.studies.contrast.config import FORMS, other_form
from headcount.studies.contrast.fits import CONTROLS, GATES, HEADS, LEARNED
from headcount.studies.contrast.panels import SkillPanel

STAYS = 0.5  # nats for each token
FALLS = 0.5  # nats for each token
SAME = 0.1  # of accuracy
WORDS = {
    GATES: "the learned gates",
    HEADS: "the heads that they shut switched off",
}
CHOSEN = {GATES: "the learned gates", HEADS: "the heads that they shut"}
LOGPROB = "logprob_per_token"
Panels = Sequence[SkillPanel]


def judge_claims(panels: Panels) -> list[Claim]:
    """All claims, for each form that is kept and for gates and head sets."""
    claims: list[Claim] = []
    for kept in FORMS:
        own = [panel for panel in panels if panel.kept == kept]
        if own:
            claims += above_chance(own, _of_form)
        else:
            forgotten = other_form(kept)
            why = f"No gates kept {kept} and were tested on a skill that the model can do."
            said = f"keeping {kept}: it stays, and {forgotten} is forgotten"
            claims.append(Claim.not_tested(said, None, why))
    return claims


def _of_form(panels: Panels) -> list[Claim]:
    claims = []
    for series in LEARNED:
        claims += [make(panels, series) for make in (_stays, _falls, _selective)]
    return [*claims, _same_accuracy(panels)]


def _stays(panels: Panels, series: str) -> Claim:
    return Claim.of_family(
        f"keeping {panels[0].kept}: under {WORDS[series]}, the log-probability of the answer in "
        f"this form falls by less than {STAYS:g} for each token on every skill that was left out "
        "(measured in the skill that decides: the change from the whole model)",
        None,
        {panel.name: panel.change(panel.kept, series, LOGPROB) for panel in panels},
        above=-STAYS,
    )


def _falls(panels: Panels, series: str) -> Claim:
    return Claim.of_family(
        f"keeping {panels[0].kept}: under {WORDS[series]}, the log-probability of the answer to "
        f"{_form(panels[0].forgotten)} falls further than with as many random heads off, and than "
        f"with random heads of the same layers off, by more than {FALLS:g} for each token on every "
        "skill that was left out (measured in the skill that decides: learned minus random)",
        None,
        {
            f"{panel.name}, against {control}": panel.minus(
                panel.forgotten, series, control, LOGPROB
            )
            for panel in panels
            for control in CONTROLS
        },
        below=-FALLS,
    )


def _selective(panels: Panels, series: str) -> Claim:
    return Claim.of_family(
        f"keeping {panels[0].kept}: {CHOSEN[series]} are selective: the log-probability of the "
        f"answer to {_form(panels[0].forgotten)} falls further than that in the kept form, and by "
        f"more than {FALLS:g} for each token more so than with as many random heads off, on every "
        "skill that was left out (measured in the skill that decides: forgotten minus kept form, "
        "learned minus random)",
        None,
        {
            f"{panel.name}, against {control}": panel.minus(
                panel.forgotten, series, control, LOGPROB
            )
            - panel.minus(panel.kept, series, control, LOGPROB)
            for panel in panels
            for control in CONTROLS
        },
        below=-FALLS,
    )


def _same_accuracy(panels: Panels) -> Claim:
    family: dict[str, Estimate] = {}
    for panel in panels:
        change = panel.change(panel.kept, HEADS, "accuracy")
        family[f"{panel.name}, a rise"] = change
        family[f"{panel.name}, a fall"] = (change * -1.0).limited(-1, 1)
    return Claim.of_family(
        f"keeping {panels[0].kept}: with {WORDS[HEADS]}, accuracy in this form changes by less "
        f"than {SAME:g} in either direction on every skill that was left out (measured in the "
        "skill and direction that decide: the change)",
        None,
        family,
        below=SAME,
    )


def _form(form: str) -> str:
    return "an instruction" if form == "instruction" else "in-context prompts"
