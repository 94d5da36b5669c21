"""Where an answer in a box ends."""

from __future__ import annotations

import pytest

from headcount import HeadcountError
from headcount.tasks import Example, Task
from headcount.tasks.answer_endings import box_end, boxed


@pytest.mark.parametrize(
    ("text", "content", "rest"),
    [
        (r"\boxed{7}", "7", ""),
        (r"It is \boxed{\frac{1}{2}}, I think", r"\frac{1}{2}", ", I think"),
        (r"\boxed {\{1, 2\}} set", r"\{1, 2\}", " set"),  # escaped braces are no braces
        (r"\boxed{} and \boxed{3}.", "3", "."),  # an empty box is how prompts name the box
        (r"\boxed{ } no", None, None),
        (r"\boxed{\frac{1}{2}", None, None),  # not yet complete
        (r"boxed{7}", None, None),
        (r"\fbox{12}", "12", ""),
        ("", None, None),
        ("\\boxed{1\\", None, None),
    ],
)
def test_a_box_ends_where_its_braces_balance(
    text: str, content: str | None, rest: str | None
) -> None:
    assert boxed(text) == content
    end = box_end(text)
    assert (None if end is None else text[end:]) == rest


def test_the_last_box_counts_and_the_first_one_ends() -> None:
    text = r"\boxed{1} or \boxed{2}"
    assert boxed(text) == "2"
    assert box_end(text) == len(r"\boxed{1}")


def test_an_unknown_ending_is_a_sentence() -> None:
    with pytest.raises(HeadcountError, match=r'no ending "boxes".*Did you mean'):
        Task("t", 1, (Example("0", "a", " b"),), until="boxes")
