"""The pages in a real browser: a Chromium of this machine, driven by Playwright, which downloads nothing."""

import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.data.tasks.reading.labels import in_force, read_entries
from components.pages.app import PagesServer
from tests.pages.conftest import TASK

playwright = pytest.importorskip("playwright.sync_api", reason="the driver of the browser is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

PAGES = ("/", "/runs", "/try", "/label", "/errors", "/lineage", "/report")
WIDTHS = {"wide": 1280, "phone": 400}
#: Height of the first screen.
SCREEN = 800
#: Minimum contrast of text (WCAG 2.2, level AA: 4.5; large text: 3).
CONTRAST = 4.5

BOXES = """() => [...document.querySelectorAll("main .card")].map((card) => {
  const box = card.getBoundingClientRect(), title = card.querySelector("h2");
  return {title: title ? title.textContent : "", left: box.left / innerWidth, width: box.width / innerWidth,
          top: box.top, bottom: box.bottom, right: box.right, x: box.left};
})"""
CONTRASTS = """() => {
  const parse = (text) => {
    const found = text.match(/[\\d.]+/g).map(Number);
    return found.length < 4 ? [...found, 1] : found;
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[3] * top[i] + (1 - top[3]) * below[i]);
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (node) => {
    const layers = [];
    for (; node; node = node.parentElement) layers.push(parse(getComputedStyle(node).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const found = [];
  for (const node of document.querySelectorAll("body *:not(svg *)")) {
    if (![...node.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim())) continue;
    if (!node.checkVisibility() || node.closest(".skip, option, button:disabled")) continue;
    const below = ground(node);
    const [a, b] = [light(over(parse(getComputedStyle(node).color), below)), light(below)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([contrast, node.tagName + " " + node.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def address(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server of a copy of the finished project that accepts labels."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for name in ("data", "artifacts", ".dvc"):
        shutil.copytree(finished / name, tmp_path / name)
    (tmp_path / "params.yaml").write_text((finished / "params.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    served = PagesServer(tmp_path / "params.yaml", root=tmp_path, port=0, write=True)
    ready = threading.Event()
    thread = threading.Thread(target=lambda: served.run(started=ready.set), daemon=True)
    thread.start()
    assert ready.wait(30)
    yield served.address.rstrip("/")
    served.stop()
    thread.join(10)
    assert not thread.is_alive()


def opened(browser: Any, *, width: int = 1100, dark: bool = False) -> tuple[Any, list[str]]:
    """A window, and the list to which its errors are added. Requests to other addresses are errors."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", has_touch=width < 500
    )
    page, problems = context.new_page(), list[str]()
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda item: problems.append(item.url) if not item.url.startswith("http://127.0.0.1:") else None)
    return page, problems


def predict(page: Any, address: str) -> None:
    page.goto(f"{address}/try")
    page.fill("textarea", "the old goat is here")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".words", timeout=60_000)


def test_every_page_opens_in_both_widths_and_colours(browser, address):
    for size, width in WIDTHS.items():
        for dark in (False, True):
            page, problems = opened(browser, width=width, dark=dark)
            for path in PAGES:
                predict(page, address) if path == "/try" else page.goto(address + path)
                where = f"{path} {size}"
                assert not problems, (where, problems)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{where}: scrolls sideways"
                boxes = page.evaluate(BOXES)
                assert boxes or path == "/report", where
                assert not any(overlap(a, b) for a in boxes for b in boxes if a is not b), where
                weak = [entry for entry in page.evaluate(CONTRASTS) if entry[0] < CONTRAST]
                assert not weak, (where, "dark" if dark else "light", weak)
                small = page.evaluate(
                    "[...document.querySelectorAll('main button')].filter((one) => one.checkVisibility() &&"
                    " one.getBoundingClientRect().height < 40).map((one) => one.textContent)"
                )
                assert not small, (where, small)
            page.context.close()


@pytest.mark.parametrize("width", WIDTHS.values())
@pytest.mark.parametrize("path", ["/", "/report"])
def test_the_answer_and_the_figure_are_on_the_first_screen(browser, address, width, path):
    page, problems = opened(browser, width=width)
    page.goto(address + path)
    answer, figure = (page.locator(of).first.bounding_box() for of in ("p.lead", "figure svg"))
    assert 0 < answer["y"] < answer["y"] + answer["height"] <= figure["y"], "the answer comes first"
    assert figure["height"] > 50 and figure["y"] + figure["height"] <= SCREEN
    story = page.locator("p.lead").first.inner_text()
    text = page.inner_text("body")
    assert story.startswith("tfidf-words-characters (version 1) is the current model") and text.count(story) == 1
    assert len([sentence for sentence in re.split(r"[.;] ", text) if "beats" in sentence]) <= 1
    assert not problems


def overlap(a: dict[str, float], b: dict[str, float]) -> bool:
    across = min(a["right"], b["right"]) - max(a["x"], b["x"])
    down = min(a["bottom"], b["bottom"]) - max(a["top"], b["top"])
    return across > 1 and down > 1


@pytest.mark.parametrize("width", WIDTHS.values())
def test_keys_label_texts_and_undo(browser, address, tmp_path, width):
    ledger = tmp_path / "data" / TASK / f"labels-{TASK}.ledger.jsonl"
    page, problems = opened(browser, width=width)
    page.goto(f"{address}/label")
    page.keyboard.press("c")
    page.wait_for_selector(".answers", timeout=60_000)
    first = page.inner_text(".text.big")
    for key, label in (("1", "animal"), ("3", "metal")):
        text = page.inner_text(".text.big")
        page.keyboard.press(key)
        page.wait_for_function("(text) => document.querySelector('.text.big').textContent !== text", arg=text)
        answer = json.loads(ledger.read_text().splitlines()[-1])
        assert (answer["texts"], answer["after"]) == ([text], [label])
    text = page.inner_text(".text.big")
    page.keyboard.press("9")
    page.keyboard.press("s")
    page.wait_for_function("(text) => document.querySelector('.text.big').textContent !== text", arg=text)
    for _ in range(3):
        text = page.inner_text(".text.big")
        page.keyboard.press("u")
        page.wait_for_function("(text) => document.querySelector('.text.big').textContent !== text", arg=text)
    assert page.inner_text(".text.big") == first
    taken_back = ledger.read_text()
    assert in_force(read_entries(ledger)) == []
    # Keys that are typed into a field are text.
    page.click("text=New label")
    page.fill("input[aria-label='New label']", "")
    page.keyboard.type("u1")
    assert page.input_value("input[aria-label='New label']") == "u1" and ledger.read_text() == taken_back
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not problems


def test_the_pages_are_reached_by_keys(browser, address):
    page, problems = opened(browser)
    page.goto(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for key, path in (("e", "/errors"), ("i", "/lineage"), ("o", "/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(address + path)
    page.goto(f"{address}/lineage")
    page.focus(".graph a.marked")
    page.keyboard.press("Enter")
    page.wait_for_selector("#facts dl")
    assert re.search(r"things, version 1", page.inner_text("#facts"))
    assert not problems


def test_a_confusion_opens_its_rows(browser, address):
    page, problems = opened(browser)
    page.goto(f"{address}/errors?system=tfidf-words&budget=8&seed=0")
    page.click("[aria-label='3 rows of animal predicted as metal']")
    page.wait_for_selector("td.chosen")
    assert page.locator("article.mistake").count() == 3
    assert not problems
