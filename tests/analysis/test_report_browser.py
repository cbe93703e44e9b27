"""The report in a real headless Chromium: shown, sorted, filtered, narrow, dark, and silent."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from analysis import report
from analysis.html.pages import render
from tests.analysis.report_scene import hostile_sweep
from tests.analysis.synthetic_scene import SyntheticSweep
from tests.needs import needs

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
Scheme = Literal["light", "dark"]
RUNS = "#runs tbody tr"
CONTRAST = """
() => {
  const channels = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const linear = [r, g, b].map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const back = channels(getComputedStyle(at).backgroundColor);
      if (back.length === 3 || back[3] === 1) return back;
    }
    return [255, 255, 255];
  };
  const found = [];
  const seen = new Set();
  let checked = 0;
  for (const node of document.querySelectorAll("body *")) {
    const words = [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
    if (!words || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const ink = channels(node.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const back = ground(node);
    const key = ink + "/" + back;
    checked += 1;
    if (seen.has(key)) continue;
    seen.add(key);
    const [a, b] = [light(ink), light(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(node.tagName + "." + node.className + " " + key + " " + ratio);
  }
  return { checked, found };
}
"""
OVERFLOW = """
() => [...document.querySelectorAll("body *")]
  .filter((node) => !node.closest(".scroll, pre, .skip") && node.checkVisibility()
    && node.getBoundingClientRect().right > innerWidth + 1)
  .map((node) => node.tagName + "." + node.className)
"""


@dataclass
class Tab:
    """A page, and what went on while it was shown."""

    page: Page
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a hostile agent's run, with plots."""
    root = tmp_path_factory.mktemp("hostile")
    assert report.main([str(hostile_sweep(root)), "--out", str(root / "out")]) == 0
    return root / "out"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser, which skips the tests where there is none."""
    needs("chromium", is_there=CHROMIUM is not None, cure="apt-get install chromium")
    with sync_playwright() as playwright:
        browser = _launched(playwright)
        yield browser
        browser.close()


def _launched(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))


def _open(
    browser: Browser, path: Path, *, width: int = 1280, scheme: Scheme = "light", hash_: str = ""
) -> Tab:
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    tab = Tab(context.new_page())
    tab.page.on("console", lambda message: tab.problems.append(message.text))
    tab.page.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.page.on("request", lambda request: tab.requests.append(request.url))
    tab.page.goto(f"{path.as_uri()}{hash_}")
    return tab


def _pages(report_site: Path, synthetic: SyntheticSweep) -> list[Path]:
    fates = ("invalid", "infra_error", "running", "completed", "retried")
    known = {run["fate"] for run in synthetic.truth["runs"].values()}
    names = [synthetic.with_fate(fate) for fate in fates if fate in known]
    assert len(names) >= 3
    return [report_site / "index.html", *(report_site / "runs" / f"{name}.html" for name in names)]


def _wait(page: Page, condition: str) -> None:
    """Until ``condition`` holds; playwright's own wait evaluates text, which the policy forbids."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"it did not come to be: {condition}")


def _column(page: Page, number: int) -> list[str]:
    return page.locator(f"{RUNS} td:nth-child({number})").all_inner_texts()


def test_pages_show_without_a_problem_and_ask_for_nothing_outside(
    chromium: Browser, report_site: Path, synthetic: SyntheticSweep
) -> None:
    for path in _pages(report_site, synthetic):
        tab = _open(chromium, path)
        assert tab.page.locator("h1").inner_text()
        assert tab.page.locator("section").count() >= 4
        assert tab.problems == []
        assert all(url.startswith(("file://", "data:")) for url in tab.requests)
        tab.page.context.close()


def test_scores_are_sorted_by_mouse_and_by_keyboard(chromium: Browser, report_site: Path) -> None:
    tab = _open(chromium, report_site / "index.html")
    heads = tab.page.locator("#runs thead th")
    place = heads.all_inner_texts().index(
        next(text for text in heads.all_inner_texts() if text.startswith("Best"))
    )
    head = heads.nth(place)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    up = _numbers(_column(tab.page, place + 1))
    assert up == sorted(up)
    assert len(set(up)) > 3
    head.get_by_role("button").focus()
    tab.page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    down = _numbers(_column(tab.page, place + 1))
    assert down == sorted(down, reverse=True)
    assert _column(tab.page, place + 1)[-1] == "–", "what has no score comes last, both ways"
    name = heads.nth(1)
    name.get_by_role("button").press("Space")
    stacks = _column(tab.page, 2)
    assert stacks == sorted(stacks)
    assert head.get_attribute("aria-sort") is None
    assert tab.problems == []
    tab.page.context.close()


def _numbers(texts: list[str]) -> list[float]:
    return [float(text) for text in texts if text != "–"]


def test_runs_are_filtered_by_words_and_choices_and_the_address_keeps_it(
    chromium: Browser, report_site: Path, synthetic: SyntheticSweep
) -> None:
    runs = synthetic.results.runs
    tab = _open(chromium, report_site / "index.html")
    page = tab.page
    assert page.locator(RUNS).count() == min(len(runs), 50)
    mode = page.locator(".tools select").filter(has=page.locator("option[value=sft_only]"))
    mode.focus()
    mode.select_option("sft_only")
    wanted = len(runs.filter(mode="sft_only"))
    assert page.locator(RUNS).count() == wanted
    assert page.locator(".tools + .status").inner_text() == f"{wanted} of {len(runs)} rows"
    page.locator("#find").focus()
    page.keyboard.type("gsm8k s1")
    few = runs.filter(mode="sft_only", task="gsm8k", seed=1)
    assert page.locator(RUNS).count() == len(few) > 0
    address = page.url
    page.context.close()
    again = _open(chromium, report_site / "index.html", hash_=address.partition("index.html")[2])
    assert again.page.locator(RUNS).count() == len(few)
    again.page.get_by_role("button", name="Clear").click()
    assert again.page.locator(RUNS).count() == min(len(runs), 50)
    assert again.problems == []
    again.page.context.close()


def test_a_run_without_a_page_is_found_by_its_id_and_is_no_link(
    chromium: Browser, synthetic: SyntheticSweep, tmp_path: Path
) -> None:
    words = [str(synthetic.folder), "--out", str(tmp_path), "--no-plots", "--no-studies"]
    assert report.main([*words, "--pages", "5"]) == 0
    paged = {path.stem for path in (tmp_path / "runs").glob("*.html")}
    name = min(set(synthetic.truth["runs"]) - paged)
    tab = _open(chromium, tmp_path / "index.html")
    for wanted, num_links in ((name, 0), (min(paged), 1)):
        tab.page.locator("#find").fill(wanted)
        rows = tab.page.locator(RUNS)
        assert {*_column(tab.page, 1)} == {wanted.rsplit("-", 1)[-1]}
        assert rows.first.locator("a").count() == num_links
    notice = tab.page.locator("#all-runs .notice")
    assert "--pages all" in notice.inner_text()
    assert tab.problems == []
    tab.page.set_viewport_size({"width": 375, "height": 800})
    assert tab.page.evaluate("document.documentElement.scrollWidth") == 375
    assert tab.page.evaluate(OVERFLOW) == []
    tab.page.context.close()


def test_long_tables_are_paged_by_keyboard(chromium: Browser, report_site: Path) -> None:
    paths = sorted(report_site.glob("runs/*.html"), key=lambda path: path.stat().st_size)
    tab = _open(chromium, paths[-1], hash_="#calls")
    page = tab.page
    assert page.locator("#calls").is_visible(), "a link into a folded part opens it"
    pager = page.locator("#calls .pager")
    assert pager.locator(".status").inner_text().startswith("1 to 50 of ")
    assert pager.get_by_role("button", name="Previous").is_disabled()
    pager.get_by_role("button", name="Next").press("Enter")
    assert pager.locator(".status").inner_text().startswith("51 to ")
    assert page.locator("#calls tbody td").first.inner_text() == "51"
    page.context.close()


def test_the_lineage_is_filtered_by_kind(chromium: Browser, report_site: Path) -> None:
    paths = sorted(report_site.glob("runs/*.html"), key=lambda path: path.stat().st_size)
    tab = _open(chromium, paths[-1])
    page = tab.page
    assert page.locator(".lineage li.k-tool").first.is_visible()
    page.get_by_label("Tool call").press("Space")
    assert page.locator(".lineage li.k-tool:visible").count() == 0
    assert page.locator(".lineage li.k-score").first.is_visible()
    closed = page.locator(".lineage li.k-code details, #code details").first
    summary = closed.locator("summary")
    summary.focus()
    page.keyboard.press("Enter")
    assert closed.get_attribute("open") is not None
    assert tab.problems == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(
    chromium: Browser, report_site: Path, synthetic: SyntheticSweep, scheme: Scheme
) -> None:
    grounds = set()
    for path in _pages(report_site, synthetic):
        tab = _open(chromium, path, scheme=scheme)
        tab.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        told = tab.page.evaluate(CONTRAST)
        assert told["checked"] > 50
        assert told["found"] == [], path.name
        grounds.add(tab.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        tab.page.context.close()
    assert grounds == {"rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 23, 30)"}


def test_nothing_overflows_a_phone(
    chromium: Browser, report_site: Path, synthetic: SyntheticSweep, hostile: Path
) -> None:
    for path in (
        *_pages(report_site, synthetic),
        hostile / "index.html",
        hostile / "runs" / "r.html",
    ):
        tab = _open(chromium, path, width=375)
        tab.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert tab.page.evaluate("document.documentElement.scrollWidth") == 375, path.name
        assert tab.page.evaluate(OVERFLOW) == [], path.name
        tab.page.context.close()


EDGES = """
() => [...document.querySelectorAll(".scroll")].filter((b) => b.checkVisibility()).map((box) => {
  const told = box.previousElementSibling;
  const words = told && told.matches(".beyond") && !told.hidden ? told.textContent : "";
  const name = box.closest("[id]").id;
  return [name, box.scrollWidth > box.clientWidth + 1 ? "more columns →" : "", words];
})
"""


@pytest.mark.parametrize("width", [1280, 800])
def test_a_table_fits_or_says_that_it_goes_on(
    chromium: Browser, report_site: Path, width: int
) -> None:
    page = _open(chromium, report_site / "index.html", width=width).page
    page.evaluate("() => document.querySelectorAll('details').forEach((each) => each.open = true)")
    page.wait_for_timeout(200)
    edges = {name: (wanted, words) for name, wanted, words in page.evaluate(EDGES)}
    assert [name for name, (wanted, words) in edges.items() if wanted != words] == []
    cut = {name for name, (wanted, _) in edges.items() if wanted}
    assert {"runs", "t-cells"} <= cut if width < 1280 else cut <= {"t-cells", "t-failures"}
    page.evaluate("() => { document.querySelector('#t-cells .scroll').scrollLeft = 9999; }")
    page.wait_for_timeout(200)
    assert page.locator("#t-cells .beyond").inner_text() == "← more columns"
    page.context.close()


def test_a_hostile_page_runs_no_script_and_its_plots_have_words(
    chromium: Browser, hostile: Path
) -> None:
    for path in (hostile / "index.html", hostile / "runs" / "r.html"):
        tab = _open(chromium, path)
        assert tab.page.evaluate("window.hacked") is None
        assert tab.problems == []
        assert all(url.startswith(("file://", "data:")) for url in tab.requests)
        tab.page.context.close()
    for scheme in ("light", "dark"):
        tab = _open(chromium, hostile / "index.html", scheme=scheme)
        image = tab.page.locator("figure.plot img").first
        image.scroll_into_view_if_needed()
        _wait(tab.page, "document.querySelector('figure.plot img').naturalWidth > 0")
        assert len(image.get_attribute("alt") or "") > 20
        assert f".{scheme}.svg" in image.evaluate("(node) => node.currentSrc")
        tab.page.context.close()


def test_the_policy_stops_a_script_that_was_put_into_a_page(
    chromium: Browser, report_site: Path, tmp_path: Path
) -> None:
    text = (report_site / "index.html").read_text("utf-8")
    page = tmp_path / "index.html"
    added = "<script>window.hacked = 1</script><img src='http://127.0.0.1:9/x' onerror='hacked=1'>"
    page.write_text(text.replace("</main>", f"{added}</main>"), "utf-8")
    tab = _open(chromium, page)
    assert tab.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in words for words in tab.problems)
    tab.page.context.close()


def test_a_live_page_loads_itself_anew_until_it_is_paused(
    chromium: Browser, report_site: Path, tmp_path: Path
) -> None:
    page = tmp_path / "live.html"
    run = {"run_id": "r", "agent": "a", "driver": "d", "mode": "free", "tasks": ["t"], "seed": 0,
           "folder": "/x"}  # fmt: skip
    page.write_text(
        render(
            "broken.html", run=run, problem="none", refresh_s=1.0, written="now", has_overview=True
        ),
        "utf-8",
    )
    tab = _open(chromium, page)
    tab.page.wait_for_event("load")
    tab.page.get_by_role("button", name="Pause").press("Enter")
    loads = len(tab.requests)
    assert loads >= 2
    tab.page.wait_for_timeout(1500)
    assert len(tab.requests) == loads
    assert tab.page.get_by_role("button", name="Go on").get_attribute("aria-pressed") == "true"
    tab.page.context.close()
