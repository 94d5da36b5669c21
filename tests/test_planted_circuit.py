"""The planted circuits with backups, a chain and negative heads do what they say."""

from __future__ import annotations

import numpy as np
import pytest
from planted_circuit import Circuit, plant_circuit

from headcount import Head, evaluate

CIRCUITS = {
    "all": {},
    "pairs alone": {"chain": (), "negative": ()},
    "chain alone": {"pairs": ()},
    "deep": {"chain": ("0.0", "1.1", "3.2", "4.0"), "pairs": (("0.1", "4.3"),), "layers": 5},
}


@pytest.fixture(scope="module", params=CIRCUITS)
def circuit(request: pytest.FixtureRequest) -> Circuit:
    return plant_circuit(**CIRCUITS[request.param], n=16)


def effects(circuit: Circuit, sets: list[list[Head]], ablation: str = "zero") -> np.ndarray:
    gates = np.stack([circuit.model.layout.gates(keep=heads) for heads in sets])
    task, how = circuit.task, {"metric": "logit_difference", "ablation": ablation, "split": "all"}
    return evaluate(circuit.model, task, gates, **how).values


@pytest.mark.parametrize("ablation", ["zero", "corrupted"])
def test_any_heads_have_the_effect_that_is_planted(circuit: Circuit, ablation: str) -> None:
    heads, rng = list(circuit.model.layout), np.random.default_rng(0)
    sets = [[], heads, *([h for h in heads if rng.random() < 0.6] for _ in range(24))]
    sets += [[h for h in heads if h != member] for member in sorted(circuit.members)]
    expected = [circuit.effect(some) for some in sets]
    found = effects(circuit, sets, ablation)
    np.testing.assert_allclose(found, np.repeat(np.array(expected)[:, None], 16, 1), atol=2e-3)


def test_the_right_heads_alone_do_what_all_do_and_more(circuit: Circuit) -> None:
    ones = [*circuit.chain, *(pair[0] for pair in circuit.pairs)]
    assert circuit.right_to_keep(ones)
    assert not circuit.right_to_keep([*ones, *circuit.negative, Head(3, 3)])
    both = [*circuit.chain[:1], *(head for pair in circuit.pairs for head in pair)]
    assert circuit.right_to_mask(both)
    assert circuit.effect(set(circuit.model.layout) - set(both)) <= 0
    right = circuit.model.layout.gates(keep=ones)[None]
    how = {"metric": "accuracy", "split": "all"}
    assert evaluate(circuit.model, circuit.task, right, **how).mean().tolist() == [1.0]
    assert evaluate(circuit.model, circuit.task, 0 * right, **how).mean().tolist() == [0.0]


def test_heads_have_one_role_and_chains_rise() -> None:
    with pytest.raises(ValueError, match="one role"):
        plant_circuit(negative=("0.1",))
    with pytest.raises(ValueError, match="rising"):
        plant_circuit(chain=("1.3", "0.2"))
