"""The page in a real browser: pointing, sorting, copying, light and dark, paper and telephone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report.browser import chromium, opened
from report.page_samples import NASTY, attribution, write_sample

from headcount.report import write_page

PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    folders = [
        write_sample(folder / "a", "masked-heads"),
        write_sample(folder / "b", "heads-kept"),
        write_sample(folder / "c", "heads-kept", model=NASTY),
    ]
    return write_page(folders, folder / "index.html", failures={"head-roles": NASTY})


@pytest.fixture
def page(browser: Any, sample: Path) -> Iterator[Any]:
    """The page; in whatever a test does, nothing may be complained of or asked for."""
    with opened(browser, sample) as seen:
        yield seen.page
        assert seen.console == []
        assert seen.requests == []


def test_every_picture_is_shown(page: Any) -> None:
    widths = page.eval_on_selector_all("img", "all => all.map(one => one.naturalWidth)")
    assert widths == [60, 60, 60]
    assert page.locator("h1").inner_text().startswith("Three studies on tiny, <img src=x")


def test_the_policy_refuses_what_is_not_the_page_s_own(browser: Any, sample: Path) -> None:
    """The other tests would see no request if there were no way to see one."""
    with opened(browser, sample) as seen:
        seen.page.evaluate("() => { new Image().src = 'https://example.com/x.png'; }")
        seen.page.evaluate(
            "() => { document.body.insertAdjacentHTML('beforeend', '<p onclick=1>') }"
        )
        seen.page.wait_for_timeout(200)
        assert any("Content Security Policy" in text for text in seen.console)
        assert seen.requests == []


# The map


def test_pointing_at_a_head_tells_what_is_known(page: Any) -> None:
    tip = page.locator(".tip")
    assert not tip.is_visible()
    page.locator('[data-head="1.2"]').hover()
    said = tip.inner_text()
    assert "Head 1.2" in said
    assert "rank 1 of 11" in said
    rows = {row.split("\t")[0]: row for row in said.splitlines() if "\t" in row}
    low, high = attribution().intervals()[6]
    assert f"0.900\t[{low:.3f}, {high:.3f}]" in rows["attribution"]
    assert "1.250" in rows["patching"]
    assert "−1.250" in rows["effect when removed"]
    assert "rank 2 of 11" in rows["effect when removed"]  # 0.3 is missed more
    assert "syntax · role: facilitation" in said  # what the other task says
    page.locator('[data-head="2.0"]').hover()
    assert "−0.500" in tip.inner_text()
    assert "rank 11 of 11" in tip.inner_text()
    page.mouse.move(0, 0)
    assert not tip.is_visible()


def test_another_score_recolours_the_map_and_sorts_the_table(page: Any) -> None:
    colour = "one => getComputedStyle(one).backgroundColor"
    cell = page.locator('[data-head="0.3"]')
    before = cell.evaluate(colour)
    assert "down" in cell.get_attribute("class")
    page.get_by_label("Colour by").select_option(label="patching")
    assert cell.evaluate(colour) != before
    assert "up" in cell.get_attribute("class")
    assert page.locator(".legend").inner_text().startswith("−2.500")
    assert page.locator(".head-table tbody tr").first.inner_text().startswith("0.3")


def test_roles_have_signs_beside_their_colours(page: Any) -> None:
    page.get_by_label("Study and task").select_option(label="masked-heads · syntax")
    assert page.locator('[data-head="1.2"]').inner_text() == "+"
    assert page.locator('[data-head="2.0"]').inner_text() == "−"
    assert "facilitation: 1 head" in page.locator(".legend").inner_text()
    page.locator('[data-head="2.0"]').hover()
    assert "interference" in page.locator(".tip").inner_text()
    first = page.locator(".head-table tbody tr").first.inner_text()
    assert first.split()[:2] == ["1.2", "facilitation"]


def test_layers_can_be_sorted(page: Any) -> None:
    first_row = "all => all.slice(0, 3).map(one => one.dataset.head)"
    assert page.eval_on_selector_all(".cell", first_row) == ["0.0", "1.0", "2.0"]
    page.get_by_label("Sort each layer by this score").check()
    assert page.eval_on_selector_all(".cell", first_row) == ["0.0", "1.2", "2.2"]
    page.get_by_label("Colour by").select_option(label="effect when removed")
    assert page.eval_on_selector_all(".cell", first_row) == ["0.3", "1.2", "2.1"]
    assert page.locator(".head-table tbody tr").first.inner_text().startswith("0.3")


def test_the_map_goes_by_keys(page: Any) -> None:
    page.locator(".grid").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert "Head 1.2" in page.locator(".tip").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator(".tip").is_visible()


def test_a_model_is_chosen_by_its_name_as_it_is(page: Any) -> None:
    page.get_by_label("Model").select_option(label=NASTY)
    names = page.get_by_label("Study and task").locator("option").all_inner_texts()
    assert names == ["heads-kept-2 · ioi", "heads-kept-2 · syntax"]


# Tables


def column(page: Any, table: str, number: int) -> list[str]:
    cells = f"{table} tbody tr td:nth-child({number})"
    return [text.strip() for text in page.locator(cells).all_text_contents()]


def test_headings_sort_by_number_and_turn_around(page: Any) -> None:
    page.locator("#masked-heads details summary", has_text="All points").click()
    table = "#masked-heads details:has-text('All points') table"
    heading = page.locator(f"{table} th", has_text="value")
    heading.locator("button").click()
    down = ["100.000", "10.000", "9.000", "0.0005", "−1.000", ""]
    assert column(page, table, 3) == down
    assert heading.get_attribute("aria-sort") == "descending"
    heading.locator("button").press("Enter")
    assert column(page, table, 3) == [*reversed(down[:-1]), ""]  # what is not known stays last
    assert heading.get_attribute("aria-sort") == "ascending"
    page.locator(f"{table} th", has_text="series").locator("button").click()
    assert column(page, table, 2) == [f"row {number}" for number in range(6)]
    assert heading.get_attribute("aria-sort") is None


def test_claims_sort_by_what_was_measured(page: Any) -> None:
    page.locator("#masked-heads .claims th button", has_text="Measured").click()
    assert column(page, "#masked-heads .claims", 3) == ["0.500", "0.125", "−0.250"]


def test_the_table_of_heads_sorts_by_every_column(page: Any) -> None:
    table = ".head-table"
    names = page.locator(f"{table} th").all_inner_texts()
    assert names == ["head", "attribution", "patching", "effect when removed"]
    for number, (first, last) in enumerate(
        [("0.0", "2.2"), ("1.2", "2.0"), ("0.3", "2.0"), ("2.0", "0.3")], start=1
    ):
        button = page.locator(f"{table} th:nth-child({number}) button")
        button.click()
        if page.locator(f"{table} th:nth-child({number})").get_attribute("aria-sort") == (
            "ascending" if number > 1 else "descending"
        ):
            button.click()
        heads = column(page, table, 1)
        assert (heads[0], heads[-1]) == (first, last)
        assert len(heads) == 11


WITHOUT_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', { value: undefined });"
OLD_WAY = """document.execCommand = (word) => {
  window.taken = document.activeElement.value; return word === "copy"; };"""
NO_WAY = "document.execCommand = () => false;"


def copied(path: Path, browser: Any, script: str, taken: str) -> tuple[str, str]:
    """What copying the claims gives, and what the button says then."""
    permissions = ["clipboard-read", "clipboard-write"]
    with opened(browser, path, script=script, permissions=permissions) as seen:
        button = seen.page.locator("#masked-heads .tools button").first
        assert button.inner_text() == "Copy table"
        button.click()
        seen.page.wait_for_timeout(100)
        found = seen.page.evaluate(taken)
        assert seen.console == []
        return found, button.inner_text()


@pytest.mark.parametrize(
    ("script", "taken", "word"),
    [
        ("", "() => navigator.clipboard.readText()", "Copied"),
        (WITHOUT_CLIPBOARD + OLD_WAY, "() => window.taken", "Copied"),
        (
            WITHOUT_CLIPBOARD + NO_WAY,
            "() => document.querySelector('.by-hand').value",
            "Press Ctrl+C",
        ),
    ],
)
def test_tables_are_copied_as_tsv(
    browser: Any, sample: Path, script: str, taken: str, word: str
) -> None:
    text, says = copied(sample, browser, script, taken)
    assert says == word
    header, first, *_, end = text.split("\n")
    assert header.split("\t") == ["Claim", "Published", "Measured", "95 % interval", "Verdict"]
    assert first.split("\t") == [
        "the top heads matter more", "they do", "-0.25", "−0.300 to −0.200", "✓ supported",
    ]  # fmt: skip
    assert end == ""
    assert len(text.splitlines()) == 4


def test_heads_are_copied_with_their_intervals(browser: Any, sample: Path) -> None:
    script = WITHOUT_CLIPBOARD + OLD_WAY
    with opened(browser, sample, script=script) as seen:
        seen.page.locator("#heads .tools button").first.click()
        lines = seen.page.evaluate("() => window.taken").splitlines()
        assert lines[0].split("\t")[:6] == [
            "model", "task", "head", "attribution", "attribution low", "attribution high",
        ]  # fmt: skip
        low, high = (f"{end:.4g}" for end in attribution().intervals()[6])
        assert lines[1].split("\t")[:6] == ["tiny", "ioi", "1.2", "0.9", low, high]
        assert len(lines) == 12
        seen.page.locator("#go-on pre button").first.click()
        command = seen.page.evaluate("() => window.taken")
        assert command == "headcount run masked-heads --model 'tiny' --out out/x"


# Light and dark, paper and telephone

CONTRAST = """selector => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
  return [...document.querySelectorAll(selector)].map((one) => {
    let behind = one;
    while (behind && /, 0\\)|transparent/.test(getComputedStyle(behind).backgroundColor)) {
      behind = behind.parentElement;
    }
    const ink = light(parts(getComputedStyle(one).color));
    const paper = light(parts(getComputedStyle(behind).backgroundColor));
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  });
}"""
TEXTS = (
    *("h1", "h2", "main p", "nav a", ".eyebrow", ".source", "figcaption span", "summary span"),
    *(".supported", ".refuted", ".undecided", "td", "th button", ".interval", ".legend span"),
    *(".notes li", "button.tool", "pre code", "footer p", ".tip strong", ".tip .else div"),
    *("select", ".axis", ".cards p"),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_in(browser: Any, sample: Path, scheme: str) -> None:
    with opened(browser, sample, color_scheme=scheme) as seen:
        seen.page.locator('[data-head="1.2"]').hover()
        paper = seen.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(252, 252, 250)") == (scheme == "light")
        for selector in TEXTS:
            found = seen.page.evaluate(CONTRAST, selector)
            assert found, selector
            assert min(found) >= 4.5, selector
        seen.page.get_by_label("Study and task").select_option(label="masked-heads · syntax")
        signs = seen.page.evaluate(CONTRAST, ".cell.facilitation, .cell.interference")
        assert min(signs) >= 4.5


def test_a_telephone_never_scrolls_sideways(browser: Any, sample: Path) -> None:
    with opened(browser, sample, viewport=PHONE, has_touch=True) as seen:
        seen.page.evaluate("() => document.querySelectorAll('details').forEach(d => d.open = true)")
        seen.page.locator('[data-head="1.2"]').tap()
        assert seen.page.locator(".tip").is_visible()
        seen.page.locator("#heads h2").tap()
        assert not seen.page.locator(".tip").is_visible()
        width = seen.page.evaluate("() => document.documentElement.scrollWidth")
        assert width <= PHONE["width"]


def test_on_paper_nothing_is_cut_off(browser: Any, sample: Path) -> None:
    wide = {"width": 690, "height": 980}  # an A4 sheet without its margins
    with opened(browser, sample, color_scheme="dark", viewport=wide) as seen:
        seen.page.evaluate("() => document.querySelectorAll('details').forEach(d => d.open = true)")
        seen.page.emulate_media(media="print")
        paper = seen.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(255, 255, 255)"  # whatever the screen has
        over = seen.page.evaluate(
            """() => [...document.querySelectorAll("main *")].filter((one) => {
              const box = one.getBoundingClientRect();
              return box.width && box.right > document.documentElement.clientWidth + 1;
            }).map((one) => one.outerHTML.slice(0, 80))"""
        )
        assert over == []
        assert not seen.page.locator("button.tool").first.is_visible()
        assert seen.page.pdf(format="A4").startswith(b"%PDF-")
        assert seen.console == []


def test_without_javascript_all_but_the_map_is_there(browser: Any, sample: Path) -> None:
    with opened(browser, sample, java_script_enabled=False) as seen:
        assert "needs JavaScript" in seen.page.locator("#heads").inner_text()
        assert "the top heads matter more" in seen.page.locator("#masked-heads").inner_text()
