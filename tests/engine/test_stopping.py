"""Texts that end with their box, by either way of decoding."""

from __future__ import annotations

from typing import Any

import pytest
from chain import BOX, chain_model

from headcount import HeadcountError, generate
from headcount.engine.write import decode
from headcount.engine.write.stopping import cut

LENGTH = len(chain_model().tokenizer.encode(BOX))


def test_a_text_ends_with_its_box() -> None:
    model = chain_model()
    options: dict[str, Any] = {"max_new_tokens": 3 * LENGTH, "progress": False}
    (endless,) = generate(model, ["Mary"], **options)
    assert endless.text == BOX * 3
    assert not endless.finished
    (one,) = generate(model, ["Mary"], until="boxed", **options)
    assert one.text == BOX
    assert one.finished
    some = generate(model, ["Mary", r"\boxed{", "Mary, John"], until="boxed", **options)
    assert [text.text for text in some] == [BOX, "4}" + BOX, BOX]
    limit = LENGTH - 1
    (short,) = generate(model, ["Mary"], until="boxed", max_new_tokens=limit, progress=False)
    assert not short.finished  # the limit came first


def test_both_ways_of_decoding_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chain_model()
    prompts = ["so", "Mary Mary Mary", r"so \boxed{", "4}"]
    options: dict[str, Any] = {"max_new_tokens": 2 * LENGTH, "until": "boxed", "progress": False}
    by_steps = generate(model, prompts, **options)
    monkeypatch.setattr(
        decode, "_choose_decoder", lambda job, *_: (job.generate, [list(range(len(job.ids)))])
    )
    assert generate(model, prompts, **options) == by_steps


def test_what_comes_behind_the_box_is_cut() -> None:
    model = chain_model()
    ids = model.tokenizer.encode(BOX + BOX)
    found = cut(model, ids, {2}, decode.Decoding(until="boxed"))
    assert found.ids == tuple(ids[:LENGTH])
    assert found.finished
    assert cut(model, ids, {2}, decode.Decoding(stop="ed")).text == r"\box"


def test_an_ending_that_there_is_not() -> None:
    with pytest.raises(HeadcountError, match="no ending"):
        generate(chain_model(), ["Mary"], until="box", progress=False)
