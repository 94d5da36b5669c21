"""The explorer in a real browser: what a reader can do, see, hear and carry away."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from explorer.running import TOKEN, serving, tiny_session, visiting
from report.browser import chromium
from tiny import tiny_model
from toy import toy_tokenizer

from headcount import HeadSet, wrap
from headcount.explorer import texts
from headcount.explorer.inquiries import Inquiry
from headcount.explorer.launch import ExplorerServer
from headcount.explorer.prompts import PromptPasses
from headcount.explorer.texts import pieces


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def server() -> Iterator[ExplorerServer]:
    with serving() as started:
        yield started


@pytest.fixture
def page(browser: Any, server: ExplorerServer) -> Iterator[Any]:
    """The page; in whatever a test does, nothing may be complained of or asked elsewhere."""
    with visiting(browser, server, accept_downloads=True) as visit:
        settled(visit.page, "")
        yield visit.page
        assert visit.console == []
        assert visit.elsewhere == []


def settled(page: Any, heads: str) -> None:
    """Wait until the probabilities are those of these heads, with all their random draws."""
    page.wait_for_selector(f'.prompt[data-heads="{heads}"]', timeout=20_000)
    page.wait_for_function("() => !document.querySelector('.busy').innerText", timeout=20_000)


def head(page: Any, name: str) -> Any:
    return page.locator(f'[data-head="{name}"]')


def off(page: Any) -> str:
    """The heads that the map marks."""
    marked = page.locator('.cell[aria-checked="true"]')
    names = [marked.nth(n).get_attribute("data-head") for n in range(marked.count())]
    return " ".join(sorted(names))


def column(page: Any, name: str) -> list[str]:
    return page.locator(f".next td.{name}").all_inner_texts()


def test_a_click_switches_a_head_off_beside_random_heads(page: Any) -> None:
    whole = column(page, "whole")
    head(page, "1.2").click()
    settled(page, "1.2")
    assert off(page) == "1.2"
    assert column(page, "whole")[:2] == whole[:2]
    assert column(page, "set") != column(page, "whole")
    assert len(column(page, "random")) == len(column(page, "set")) > 5
    assert "1 head of the same layers, 5 draws" in page.locator(".prompt .note").inner_text()
    head(page, "1.2").click()
    settled(page, "")
    assert column(page, "set") == column(page, "whole")


def test_dragging_and_shift_choose_many_and_undo_takes_back_one_step(page: Any) -> None:
    start, end = (head(page, name).bounding_box() for name in ("0.0", "2.0"))
    page.mouse.move(start["x"] + 5, start["y"] + 5)
    page.mouse.down()
    page.mouse.move(end["x"] + 5, end["y"] + 5, steps=12)
    page.mouse.up()
    assert off(page) == "0.0 1.0 2.0"
    head(page, "1.3").click(modifiers=["Shift"])
    assert off(page) == "0.0 1.0 1.1 1.2 1.3 2.0"
    page.get_by_role("button", name="Undo").click()
    assert off(page) == "0.0 1.0 2.0"
    page.keyboard.press("Control+z")
    assert off(page) == ""
    page.keyboard.press("Control+Shift+z")
    assert off(page) == "0.0 1.0 2.0"
    page.get_by_role("button", name="Redo").click()
    settled(page, "0.0 1.0 1.1 1.2 1.3 2.0")


def test_heads_are_typed_in_words(page: Any) -> None:
    box = page.get_by_label("Heads, in words")
    box.fill("layer 2, 0.1")
    box.press("Enter")
    settled(page, "0.1 2.0 2.1 2.2 2.3")
    assert page.get_by_label("Colour by").input_value() == "known|activity"
    box.fill("top 2")  # along what colours the map, as the slider does
    box.press("Enter")
    page.get_by_text("2 heads off").wait_for()
    two = off(page)
    page.get_by_label("Top K").fill("2")
    assert off(page) == two
    drawn = set()
    for _ in range(4):
        page.get_by_role("button", name="All on").click()
        box.fill("random 3")
        box.press("Enter")
        page.get_by_text("3 heads off").wait_for()
        drawn.add(off(page))
    assert len(drawn) > 1


def test_sliders_follow_a_ranking_and_set_the_gate(page: Any) -> None:
    page.get_by_label("Colour by").select_option("rank|attribution")
    page.wait_for_function(
        "() => document.querySelector('.legend').innerText.includes('attribution')"
    )
    page.get_by_label("Top K").fill("4")
    page.get_by_text("4 heads off").wait_for()
    four = off(page)
    page.get_by_label("Heads, in words").fill("top 4")
    page.get_by_label("Heads, in words").press("Enter")
    settled(page, four)
    page.get_by_label("Gate").fill("1")
    page.get_by_text("4 heads times 1").wait_for()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.next tbody tr')].every((row) =>"
        " row.cells[1].innerText === row.cells[2].innerText)"
    )
    page.get_by_label("Gate").fill("2")
    page.get_by_text("4 heads times 2").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("4 heads times 1").wait_for()


def test_a_ranking_that_takes_too_long_is_stopped(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Inquiry.pause

    def slowly(inquiry: Inquiry) -> None:
        time.sleep(0.5)
        pause(inquiry)

    colours = page.get_by_label("Colour by")
    colours.locator("option[value='rank|integrated-gradients']").wait_for(state="attached")
    monkeypatch.setattr(Inquiry, "pause", slowly)
    before = colours.input_value()
    assert "about " in colours.locator("option[value='rank|facilitation']").inner_text()
    assert colours.locator("option[value='rank|contrast']").count() == 0  # it needs a setting
    colours.select_option("rank|integrated-gradients")
    page.get_by_text(re.compile(r"^\d+ of \d+")).wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("The ranking integrated-gradients was stopped.").wait_for()
    assert page.get_by_label("Colour by").input_value() == before


def test_keep_only_and_the_ablations(page: Any) -> None:
    head(page, "0.1").click()
    page.get_by_label("keep only these").check()
    page.get_by_text("Only 1 head kept, all others off: 0.1").wait_for()
    page.get_by_label("Ablation").select_option("corrupted")
    page.get_by_label("Corrupted prompt").wait_for()
    page.get_by_label("Corrupted prompt").fill("pe")
    page.get_by_label("Corrupted prompt").blur()
    page.get_by_text("give it as many").wait_for()
    page.get_by_label("Ablation").select_option("mean")
    settled(page, "0.1")


def test_no_head_kept_is_said_so(page: Any) -> None:
    page.get_by_label("keep only these").check()
    page.get_by_text("No head is kept: all are off.").wait_for()
    page.get_by_text("There is no other choice of as many heads").wait_for()
    page.get_by_role("button", name="Command line").click()
    page.get_by_text("--heads --keep --metric").wait_for()


def test_a_prompt_that_cannot_be_read_greys_what_is_older(page: Any) -> None:
    page.get_by_label("Colour by").select_option("known|activity")
    head(page, "1.2").click()
    settled(page, "1.2")
    page.locator(".why .token").first.wait_for()
    page.get_by_label("Prompt", exact=True).fill("pe " * 2000)
    page.get_by_label("Prompt", exact=True).blur()
    page.get_by_text("The prompt has 6,000 characters").wait_for()
    for panel in (".prompt", ".writing", ".why"):
        page.wait_for_selector(f"{panel}.stale")
    page.wait_for_function("() => getComputedStyle(document.querySelector('.next')).opacity < 0.5")
    assert page.locator(".cell.unknown").count() == 12  # no activity of the prompt before
    assert "activity" not in page.locator(".why .scores").inner_text()
    page.get_by_role("button", name="Next example").click()
    settled(page, "1.2")
    page.wait_for_function("() => document.querySelectorAll('.stale').length === 0")
    assert page.locator(".cell.unknown").count() == 0


def test_no_head_to_measure_is_refused_at_once(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "pieces", lambda *given: (time.sleep(0.2), pieces(*given))[1])
    page.get_by_role("button", name="Write").click()
    page.get_by_role("button", name="Measure this head set").click()
    page.get_by_text("No head is off, so this is the whole model: choose").wait_for(timeout=2000)
    head(page, "1.2").click()
    settled(page, "1.2")
    assert page.locator(".busy.wrong").count() == 0


def test_the_line_under_the_map_is_true_after_every_change(page: Any) -> None:
    page.get_by_label("Colour by").select_option("known|activity")
    page.wait_for_function("() => document.querySelector('.legend').innerText")
    head(page, "1.2").click()
    tip = page.locator(".pointed")
    assert "Head 1.2 · in the head set · activity" in tip.inner_text()
    page.keyboard.press("Control+z")
    assert "in the head set" not in tip.inner_text()
    page.get_by_label("Colour by").select_option("rank|random")
    head(page, "1.2").hover()
    page.wait_for_function("() => document.querySelector('.legend').innerText.includes('random')")
    assert "Head 1.2 · random" in tip.inner_text()


def test_a_head_that_writes_nothing_says_so(browser: Any) -> None:
    module = tiny_model("llama")
    with torch.no_grad():
        module.model.layers[1].self_attn.o_proj.weight[:, 32:48] = 0
    model = wrap(module, toy_tokenizer(), name="silent")
    with serving(tiny_session(model)) as server, visiting(browser, server) as visit:
        settled(visit.page, "")
        head(visit.page, "1.2").click(modifiers=["Control"])
        visit.page.get_by_text("It writes nothing there: its output is 0.").wait_for()
        assert "Writes towards" not in visit.page.locator(".why").inner_text()
        head(visit.page, "1.1").click(modifiers=["Control"])
        visit.page.get_by_text("Writes towards").wait_for()


def test_a_text_under_corrupted_says_why_there_is_none(page: Any) -> None:
    page.get_by_label("Ablation").select_option("corrupted")
    page.get_by_text("no outputs for new tokens").wait_for()
    assert page.locator(".text.whole").inner_text() == ""
    assert page.locator(".busy.wrong").count() == 0


def test_equal_shares_have_bars_of_equal_length(page: Any) -> None:
    lengths = page.evaluate(
        """() => ["whole", "set", "random"].map((name) => parseFloat(
          getComputedStyle(document.querySelector(`.next td.${name}`), "::before").width))"""
    )
    assert lengths[0] > 0
    assert lengths == pytest.approx([lengths[0]] * 3, rel=0.03)
    assert "No head is off" in page.locator(".prompt .note").inner_text()


def test_text_streams_with_its_differences_marked(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*given: Any) -> Any:  # a tiny model writes faster than a browser draws
        time.sleep(0.03)
        return pieces(*given)

    monkeypatch.setattr(texts, "pieces", slowly)
    head(page, "0.1").click()
    head(page, "0.2").click()
    page.wait_for_selector(".texts mark", timeout=20_000)
    assert page.locator(".text.whole mark").count() == 0
    assert page.locator(".text.whole").inner_text()
    settled(page, "0.1 0.2")
    page.evaluate(
        """() => {
          const box = document.querySelector(".text.set");
          globalThis.lengths = new Set();
          new MutationObserver(() => lengths.add(box.childNodes.length))
            .observe(box, { childList: true });
        }"""
    )
    page.get_by_role("button", name="Write").click()
    page.wait_for_function("() => lengths.size > 3", timeout=20_000)  # token by token


def test_the_last_of_many_clicks_wins(page: Any) -> None:
    for name in ("0.0", "0.1", "0.2", "1.0", "1.1", "2.2"):
        head(page, name).click()
    settled(page, "0.0 0.1 0.2 1.0 1.1 2.2")
    assert page.locator(".busy.wrong").count() == 0


def test_why_shows_attention_words_and_scores(page: Any) -> None:
    head(page, "2.1").click(modifiers=["Control"])
    assert off(page) == ""  # selected, and not switched off
    page.locator(".why .token").first.wait_for()
    tokens = page.locator(".why .token")
    assert tokens.count() == 5
    tokens.nth(2).hover()
    assert "From token 3" in page.locator(".why").inner_text()
    assert "A rough reading" in page.locator(".why").inner_text()
    tokens.nth(0).focus()
    assert "100 %" in page.locator(".why").inner_text()  # the first token sees only itself
    assert "rank" in page.locator(".why .scores").inner_text()
    assert "patching" not in page.locator(".why .scores").inner_text()
    page.get_by_label("Colour by").select_option("rank|patching")
    page.wait_for_function(
        "() => document.querySelector('.why .scores').innerText.includes('patching')"
    )


def test_a_task_shows_each_head_set_beside_its_random_band(page: Any) -> None:
    page.get_by_label("Metric").select_option("logprob")
    for name in ("0.1", "2.2"):
        head(page, name).click()
        count = page.locator(".tried tbody tr").count()
        page.get_by_role("button", name="Measure this head set").click()
        page.wait_for_function(
            f"() => document.querySelectorAll('.tried tbody tr').length > {count}"
        )
    rows = page.locator(".tried tbody tr")
    assert "[" in rows.last.inner_text()
    assert page.locator(".chart circle").count() == page.locator(".chart rect").count() >= 2
    rows.nth(0).locator("input").check()
    page.locator(".tried tbody tr").nth(1).locator("input").check()
    page.get_by_text("paired by example").wait_for()
    metric = page.get_by_label("Metric").evaluate("(one) => one.selectedOptions[0].text")
    assert metric in page.locator(".chart svg").text_content()  # the axis is named
    ticks = "(name) => import(`/panels.js`).then(({ niceTicks }) => niceTicks(-1.4, 6.1))"
    assert page.evaluate(ticks) == [-2, 0, 2, 4, 6, 8]
    rows.nth(0).get_by_role("button", name="Show").click()
    settled(page, "0.1")


def test_the_same_leaves_as_command_python_file_picture_and_page(page: Any, tmp_path: Path) -> None:
    head(page, "0.1").click()
    page.get_by_role("button", name="Command line").click()
    page.get_by_text("headcount ablate --model tiny --task toy-0 --heads 0.1").wait_for()
    page.get_by_role("button", name="Python").click()
    page.get_by_text("from headcount import").wait_for()
    for name, start in (
        ("Head set as a file", b"{"),
        ("Picture", b"\x89PNG"),
        ("Page of findings", b"<!doctype html>"),
    ):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        path = tmp_path / name
        download.value.save_as(path)
        assert path.read_bytes().startswith(start)
    file = tmp_path / "Head set as a file"
    assert HeadSet.load(file) == HeadSet("0.1")
    HeadSet("0.2 2.1", keep=True, gate=0.5).save(file)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open a head set").click()
    chooser.value.set_files(file)
    page.get_by_text("Only 2 heads kept, all others times 0.5: 0.2 2.1").wait_for()
    file.write_text('{"format": "other"}')
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open a head set").click()
    chooser.value.set_files(file)
    page.get_by_text("This is not a file of a head set").wait_for()
    assert off(page) == "0.2 2.1"


def test_a_link_restores_the_state_and_has_no_token(browser: Any, server: ExplorerServer) -> None:
    with visiting(browser, server) as visit:
        page = visit.page
        settled(page, "")
        assert TOKEN not in page.url  # no longer in the address
        page.get_by_label("Heads, in words").fill("0.1 2.2")
        page.get_by_label("Heads, in words").press("Enter")
        page.get_by_label("Prompt", exact=True).fill("pe pai ku & #?=%20 lo")
        page.get_by_label("Prompt", exact=True).blur()
        page.get_by_label("keep only these").check()
        settled(page, "0.1 2.2")
        link = page.url
        assert TOKEN not in link
        other = page.context.new_page()  # the same browser knows the token
        other.goto(link)
        settled(other, "0.1 2.2")
        assert off(other) == "0.1 2.2"
        assert other.get_by_label("keep only these").is_checked()
        assert other.get_by_label("Prompt", exact=True).input_value() == "pe pai ku & #?=%20 lo"
        assert column(other, "set") == column(page, "set")
        page.reload()
        settled(page, "0.1 2.2")
    with visiting(browser, server, link) as visit:  # another browser does not
        visit.page.get_by_text("open the link that was printed").wait_for()
        assert visit.page.locator(".cell").count() == 0
        visit.page.get_by_label("Ablation").select_option("mean", force=True)
        gate = visit.page.get_by_label("Gate")
        gate.evaluate("(one) => one.focus()")
        assert gate.evaluate("(one) => one.getRootNode().activeElement !== one")  # out of reach


def test_a_link_of_another_model_shows_what_fits(browser: Any, server: ExplorerServer) -> None:
    with visiting(browser, server) as visit:
        settled(visit.page, "")
        link = f"{server.address}#heads=99.9,1.2&prompt=pe+pai&gate=7&selected=40.1&ablation=magic"
        visit.page.context.new_page().goto(link)
        other = visit.page.context.pages[-1]
        settled(other, "1.2")
        other.get_by_text("1 head times 2: 1.2").wait_for()
        assert other.get_by_label("Ablation").input_value() == "zero"


def test_another_origin_gets_nothing(browser: Any, server: ExplorerServer) -> None:
    with serving() as other, visiting(browser, other) as visit:
        settled(visit.page, "")
        told = visit.page.evaluate(
            """async ([address, token]) => {
              try {
                const answer = await fetch(address + "ask", { method: "POST", mode: "no-cors",
                  headers: { "Content-Type": "text/plain", "X-Headcount-Token": token },
                  body: JSON.stringify({ kind: "start" }) });
                return answer.status;
              } catch (error) { return String(error); }
            }""",
            [server.address, TOKEN],
        )
        assert told != 200
        assert any("Content Security Policy" in text for text in visit.console)


def test_it_goes_on_after_the_server_was_restarted(browser: Any) -> None:
    first = ExplorerServer(tiny_session(), 0, TOKEN)
    with visiting(browser, first) as visit:
        page = visit.page
        settled(page, "")
        head(page, "1.2").click()
        settled(page, "1.2")
        first.close()
        head(page, "2.2").click()
        page.get_by_text("does not answer").wait_for()
        with ExplorerServer(tiny_session(), first.port, "another-token") as second:
            assert second.port == first.port
            page.get_by_text("open the link that was printed").wait_for(timeout=20_000)
            page.context.new_page().goto(second.link)  # as the restart does
            settled(page, "1.2 2.2")
            head(page, "0.0").click()
            settled(page, "0.0 1.2 2.2")


def test_a_crash_is_a_sentence_on_the_page(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any) -> None:
        raise ZeroDivisionError("<b>deep</b>")

    monkeypatch.setattr(PromptPasses, "under", crash)
    head(page, "1.2").click()
    page.get_by_text("This computation failed (ZeroDivisionError: <b>deep</b>)").wait_for()
    monkeypatch.undo()
    head(page, "1.1").click()
    settled(page, "1.1 1.2")


def test_keyboard_alone_is_enough_and_a_reader_is_told(page: Any) -> None:
    grid = page.locator(".grid")
    grid.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", " "):
        page.keyboard.press(key)
    settled(page, "1.1")
    named = grid.get_attribute("aria-activedescendant")
    said = page.locator(f'[id="{named}"]').get_attribute("aria-label")
    assert re.match(r"Head 1\.1 · in the head set · \w+ −?\d\.\d", said)
    assert page.locator(f'[id="{named}"]').get_attribute("aria-checked") == "true"
    assert page.locator(".said[role=status]").inner_text() == "1 head off: 1.1"
    page.keyboard.press("Shift+ ")
    settled(page, "1.0 1.1 1.2 1.3")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_text("Head 2.1 of the whole model").wait_for()
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input, select, textarea, button, progress")]
          .filter((one) => !(one.ariaLabel || one.innerText.trim()
            || one.closest("label")?.innerText.trim()))
          .map((one) => one.outerHTML)"""
    )
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_window_in_light_and_dark(
    browser: Any, server: ExplorerServer, scheme: str
) -> None:
    narrow = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme}
    with visiting(browser, server, **narrow, has_touch=True) as visit:
        page = visit.page
        settled(page, "")
        assert head(page, "1.2").bounding_box()["width"] >= 24
        head(page, "1.2").tap()
        settled(page, "1.2")
        page.get_by_label("clicks only select").check()
        head(page, "2.2").tap()
        page.get_by_text("Head 2.2 of the whole model").wait_for()
        assert off(page) == "1.2"
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
        paper = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(20, 24, 28)") == (scheme == "dark")


def test_a_thousand_heads_stay_smooth(browser: Any) -> None:
    sizes = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
    model = wrap(tiny_model("llama", **sizes, head_dim=2), toy_tokenizer(), name="like-8b")
    with serving(tiny_session(model)) as server, visiting(browser, server) as visit:
        page = visit.page
        settled(page, "")
        assert page.locator(".cell").count() == 1024
        worst = page.evaluate(
            """async () => {
              const cells = [...document.querySelectorAll(".cell")].slice(0, 120);
              const frame = () => new Promise(requestAnimationFrame);
              const send = (cell, kind) => cell.dispatchEvent(
                new PointerEvent(kind, { bubbles: true, button: 0 }));
              const spent = [];
              send(cells[0], "pointerdown");
              for (const cell of cells) {
                const start = performance.now();
                send(cell, "pointerover");
                spent.push(performance.now() - start);
                await frame();
              }
              document.dispatchEvent(new PointerEvent("pointerup"));
              return spent.sort((a, b) => a - b)[Math.floor(spent.length * 0.9)];
            }"""
        )
        assert page.locator('.cell[aria-checked="true"]').count() == 120
        assert worst < 30, f"a step of a drag takes {worst:.0f} ms"  # 16 ms on an idle machine
        assert visit.console == []


def test_a_click_marks_the_head_before_the_model_has_answered(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PromptPasses, "under", lambda *_: time.sleep(1))
    head(page, "1.2").click()
    assert off(page) == "1.2"
    monkeypatch.undo()
