"""The report's files: what is written, what is refused, and hostile, damaged and large runs."""

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import report
from analysis.html.diffs import code_diffs
from analysis.html.live import live
from analysis.html.pages import render
from analysis.html.run_page import run_html, run_page
from analysis.html.site import Settings
from analysis.html.timeline import KINDS, timeline
from analysis.html.words import (
    breakable,
    clock,
    cut,
    duration,
    number,
    printable,
    sentence,
    signed,
    usd,
)
from analysis.results import load
from rl_bench.events import AgentEvent, ModeAudited, ModeVerdict, RunEnd
from tests.analysis.ledger_scene import LedgerScene
from tests.analysis.report_scene import (
    ATTACKS,
    Page,
    hostile_sweep,
    write_commit,
    write_ledger,
)
from tests.analysis.synthetic_scene import SyntheticSweep
from tests.rl_bench.judges.stand_in import Answer, StandInJudge

QUICK = ("--no-plots", "--processes", "1")


def test_every_run_has_a_page_and_every_link_leads_somewhere(
    report_site: Path, synthetic: SyntheticSweep
) -> None:
    names = {path.stem for path in (report_site / "runs").glob("*.html")}
    assert names == set(synthetic.truth["runs"])
    for path in (report_site / "index.html", *(report_site / "runs").glob("*.html")):
        page = Page(path)
        anchors = {attributes.get("id") for _, attributes in page.tags}
        for link in page.links():
            if link.startswith("#"):
                assert link[1:] in anchors, f"{path.name}: {link}"
            elif not link.startswith("data:"):
                assert (path.parent / link).is_file(), f"{path.name}: {link}"
    assert (report_site / "tables" / "failures.csv").is_file()
    assert (report_site / "studies" / next(iter(names)) / "summary.json").is_file()


def test_the_overview_tells_of_runs_that_enter_no_mean(
    report_site: Path, synthetic: SyntheticSweep
) -> None:
    page = Page(report_site / "index.html")
    runs = synthetic.results.runs.unique("run_id")
    for heading, wanted in (
        ("Invalid", runs["is_invalid"].sum()),
        ("Suspect", (runs["mode_verdict"] == "suspect").sum()),
        ("Infrastructure", runs["is_infrastructure"].sum()),
        ("Runs that count", runs["counts"].sum()),
        ("Runs", len(runs)),
    ):
        assert f"<dt>{heading}</dt><dd>{wanted}</dd>" in page.source
    invalid = synthetic.with_fate("invalid")
    assert f'href="runs/{invalid}.html"' in page.source.split('id="apart"')[1]
    assert (
        page.source.count(">suspect</span>")
        == (synthetic.results.runs["mode_verdict"] == "suspect").sum()
    )
    assert "A rule was broken" in (report_site / "runs" / f"{invalid}.html").read_text("utf-8")


def test_findings_are_the_same_on_every_page_and_the_verdict_is_none_of_them(
    report_site: Path, synthetic: SyntheticSweep
) -> None:
    runs = synthetic.results.runs.unique("run_id").to_dicts()
    assert any(run["num_findings"] for run in runs)
    for run in runs:
        page = (report_site / "runs" / f"{run['run_id']}.html").read_text("utf-8")
        audit = page.split('id="audit"')[1]
        findings = audit.split('id="findings"')[1]
        assert findings.count('<article class="finding') == run["num_findings"]
        chips = dict(re.findall(r'value="(\w+)" checked> \w+ <span class="num">(\d+)', page))
        assert int(chips.get("finding", 0)) == run["num_findings"]
        assert audit.count('id="verdict"') == (run["mode_verdict"] is not None)
    overview = (report_site / "index.html").read_text("utf-8").split('id="all-runs"')[1]
    told = re.findall(r'runs/([^"]+)\.html".*?<td class="n">(\d+)</td></tr>', overview)
    assert dict(told) == {run["run_id"]: str(run["num_findings"]) for run in runs}


def test_a_suspect_runs_headline_and_page_say_so(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.submit(1, 20, 60.0)
    judged = ModeAudited(
        verdict=ModeVerdict.SUSPECT,
        rules_version="7",
        summary="the best score owes nothing to rewards",
        methods=("sft",),
    )
    scene.tell(judged, 30)
    scene.end(40)
    scene.results()
    out = tmp_path / "out"
    assert report.main([str(scene.sweep.root), "--out", str(out), *QUICK]) == 0
    index = (out / "index.html").read_text("utf-8")
    (headline,) = re.findall(r'<p class="headline">(.*?)</p>', index)
    assert headline.endswith(" The audit doubts that the run kept to its mode (suspect).")
    page = (out / "runs" / "r.html").read_text("utf-8")
    assert "<b>Suspect.</b>" in page
    assert page.count("The best score owes nothing to rewards. Methods seen: sft.") == 1
    assert "Judged by rules 7." in page


def test_what_is_missing_is_said_in_words(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.submit(1, 20)
    scene.end(40)
    scene.results()
    out = tmp_path / "out"
    assert report.main([str(scene.sweep.root), "--out", str(out), *QUICK]) == 0
    page = (out / "runs" / "r.html").read_text("utf-8")
    assert "No submission has a score, so none is drawn." in page
    assert "<svg" not in page
    for name, words in (("Best", "no valid score"), ("Mode audit", "not audited")):
        assert f"<dt>{name}</dt><dd>{words}</dd>" in page
    assert "<dt>Cost</dt>" not in page
    index = (out / "index.html").read_text("utf-8")
    assert "1 submission, none with a valid score; the last failure: it does not load" in index
    assert "<dt>Tokens in</dt>" not in index


def test_the_run_page_has_lineage_scores_diffs_calls_and_findings(
    report_site: Path, synthetic: SyntheticSweep
) -> None:
    results = synthetic.results
    name = next(
        name
        for name, run in synthetic.truth["runs"].items()
        if run["has_code"] and run["num_revisions"] > 2 and run["counts"]
    )
    page = Page(report_site / "runs" / f"{name}.html")
    of_run = results.submissions.filter(run_id=name)
    for row in of_run.filter(status="graded").iter_rows(named=True):
        assert f"submission {row['submission_id']}, {row['task']}: {row['score']:.1f}" in page.words
    revisions = results.table("revisions").collect().filter(run_id=name)
    for revision in revisions["revision"]:
        assert f'id="r-{revision}"' in page.source
    assert '<span class="added">+' in page.source
    calls = results.table("driver_calls").collect().filter(run_id=name)
    assert f"{len(calls)} calls" in page.words
    assert "The route, from code" in page.words
    kinds = {attributes.get("class", "").split()[0] for tag, attributes in page.tags if tag == "li"
             and attributes.get("class")}  # fmt: skip
    assert {"k-training", "k-submission", "k-score", "k-code", "k-tool", "k-message"} <= kinds


@pytest.mark.parametrize("words", [["nowhere"], ["."], [".", "--out", "file"]])
def test_bad_input_is_refused_with_a_reason(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    paths = [str(tmp_path / word) if not word.startswith("--") else word for word in words]
    assert report.main(paths) == 2
    assert "name " in capsys.readouterr().err


def test_help_and_wrong_flags(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in (
        (["--help"], 0),
        (["x", "--live", "0.1"], 2),
        (["x", "--processes", "0"], 2),
    ):
        with pytest.raises(SystemExit) as ended:
            report.main(words)
        assert ended.value.code == code
    assert "--live" in capsys.readouterr().out


def test_what_a_hostile_agent_wrote_is_text(tmp_path: Path) -> None:
    sweep, out = hostile_sweep(tmp_path), tmp_path / "report"
    assert report.main([str(sweep), "--out", str(out), *QUICK]) == 0
    for path in (out / "index.html", out / "runs" / "r.html"):
        page = Page(path)
        assert [tag for tag, _ in page.tags].count("script") == 1
        assert {tag for tag, _ in page.tags}.isdisjoint({"img", "iframe", "object", "form", "base"})
        for _, attributes in page.tags:
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
        assert all(
            link.startswith(("#", "runs/", "../index.html", "../studies/", "data:,"))
            for link in page.links()
        )
    page = Page(out / "runs" / "r.html")
    assert ATTACKS[0] in page.words
    assert "{{ 7 * 7 }}" in page.words
    assert page.words.count("javascript:window.hacked=1") > 10
    assert not set(page.source) & set("\u202e\x00\x07")
    assert "abc\ufffdgnp.exe" in page.words


def test_a_page_allows_its_own_script_and_style_only(report_site: Path) -> None:
    page = Page(report_site / "index.html")
    policy = next(
        attributes["content"]
        for tag, attributes in page.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].startswith("'sha256-")
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in policy
    assert "http:" not in page.source.replace("http-equiv", "")
    assert "https:" not in page.source


def test_values_of_environment_variables_stay_out(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.end(10)
    runs = scene.results().runs
    rows = [{**row, "spec": json.dumps({"agent": {"env": {"TOKEN": "sk-1234"}}})}
            for row in runs.iter_rows(named=True)]  # fmt: skip
    text = run_html(
        run_page(rows), kinds=KINDS, study=None, stem="r", written="", has_overview=True
    )
    assert "TOKEN" in text
    assert "sk-1234" not in text


def test_a_damaged_run_costs_its_own_page_only(
    synthetic: SyntheticSweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = tmp_path / "sweep"
    names = sorted(synthetic.truth["runs"])[:3]
    for table in sorted((synthetic.folder / "tables").iterdir()):
        for name in names if table.is_dir() else ():
            (sweep / "tables" / table.name).mkdir(parents=True, exist_ok=True)
            copy = sweep / "tables" / table.name / f"{name}.parquet"
            copy.write_bytes((table / f"{name}.parquet").read_bytes())
    broken = sweep / "tables" / "processes" / f"{names[0]}.parquet"
    broken.write_bytes(broken.read_bytes()[:-40])
    out = tmp_path / "out"
    assert report.main([str(sweep), "--out", str(out), "--no-studies", *QUICK]) == 1
    assert names[0] in capsys.readouterr().err
    assert "cannot be read" in Page(out / "runs" / f"{names[0]}.html").words
    page = Page(out / "runs" / f"{names[1]}.html")
    assert "Lineage" in page.words
    assert "The code history is not beside these results" in page.words


def test_a_run_with_a_hundred_thousand_words_has_a_page_of_bounded_size(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    for place in range(4_000):
        told = AgentEvent(
            kind="tool_call",
            name="Bash",
            text=f"command {place} " + "x" * 8_000,
            call_id=str(place),
            budget_used_s=place,
        )
        scene.tell(told, place)
    scene.submit(1, 4_100, 60.0)
    scene.end(4_200)
    runs = list(scene.results().runs.iter_rows(named=True))
    page = run_page(runs)
    text = run_html(page, kinds=KINDS, study=None, stem="r", written="", has_overview=True)
    assert len(text) < 1_500_000
    assert page.timeline.num_left_out > 2_000
    assert "are left out" in text
    assert "command 0 " in text
    assert "command 3999 " in text
    assert "command 2000 " not in text
    assert "submission 1, words: 60.0" in text


def test_the_lineage_is_in_order_and_joins_calls_with_their_answers(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    order = (("tool_call", "a"), ("tool_call", "b"), ("tool_result", "b"), ("tool_result", "a"))
    for at_s, (kind, call) in enumerate(order, 5):
        event = {"kind": kind, "name": "Bash", "call_id": call, "text": f"{kind} {call}"}
        scene.tell(AgentEvent.model_validate({**event, "budget_used_s": at_s}), at_s)
    scene.submit(1, 20, 60.0)
    scene.submit(2, 40, None)
    scene.end(60)
    results = scene.results()
    names = ("submissions", "events", "driver_calls", "trace", "revisions", "processes", "findings")
    tables = {name: results.table(name).collect().rows(named=True) for name in names}
    made = timeline(tables, started=results.runs["started_at"][0])
    assert [moment.at_s for moment in made.moments] == sorted(m.at_s for m in made.moments)
    calls = [moment for moment in made.moments if moment.kind == "tool"]
    assert [(call.text, call.result) for call in calls] == [
        ("tool_call a", "tool_result a"),
        ("tool_call b", "tool_result b"),
    ]
    told = [moment.title for moment in made.moments if moment.kind in ("score", "trouble")]
    assert told == [
        "base model graded: words 50.0",
        "submission 1, words: 60.0 (gain 10.0; best so far 60.0)",
        "submission 2, words: no score, it does not load",
    ]


def test_no_content_of_a_file_passes_for_another_revision(tmp_path: Path) -> None:
    history = tmp_path / "code.git"
    first = write_commit(history, {"a.py": "one\n"})
    fake = f"x\n\0{first}\0\n+++ not a file\n--- neither\n"
    second = write_commit(history, {"a.py": fake}, parent=first)
    third = write_commit(history, {"a.py": fake, "b.py": "three\n"}, parent=second)
    empty = write_commit(history, {"a.py": fake, "b.py": "three\n"}, parent=third)
    made = code_diffs(history, [first, second, third, empty])
    texts = {name: [line.text for line in lines] for name, lines in made.lines.items()}
    assert "+one" in texts[first]
    assert "+three" in texts[third]
    assert "+++ not a file" not in texts[first]
    assert texts[empty] == []
    assert [line.kind for line in made.lines[second] if "neither" in line.text] == ["added"]


def test_a_live_report_is_made_from_the_ledgers_and_leaves_the_sweep_alone(tmp_path: Path) -> None:
    scene = LedgerScene(tmp_path)
    scene.submit(1, 20, 60.0)
    write_ledger(scene)
    before = _files(scene.sweep.root)
    out, done = tmp_path / "out", []
    settings = Settings(with_plots=False)
    thread = threading.Thread(
        target=lambda: done.append(live([scene.sweep.root], out, settings=settings, interval_s=0.2))
    )
    thread.start()
    page = out / "runs" / "r.html"
    _wait(lambda: page.is_file() and "60.0" in page.read_text("utf-8"))
    assert '<body data-refresh="0.2"' in page.read_text("utf-8")
    assert _files(scene.sweep.root) == before
    told = len(scene.entries)
    scene.submit(2, 40, 70.0)
    scene.end(60, end=RunEnd.COMPLETED)
    write_ledger(scene, first=told)
    thread.join(60)
    assert done == [0]
    text = page.read_text("utf-8")
    assert "submission 2, words: 70.0" in text
    assert (
        "data-refresh"
        not in text.split("<style>")[0] + text.split("</style>")[1].split("<script>")[0]
    )
    assert set(_files(scene.sweep.root)) == set(before)
    assert str(scene.paths.root) in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("codex/gpt_5_4", "codex/<wbr>gpt_5_4"),
        ("qwen2_5_7b_instruct", "qwen2_5_<wbr>7b_instruct"),
        ("DeepSearchQA, paper", "Deep<wbr>Search<wbr>QA, paper"),
        ("rl_only", "rl_only"),
        ("a<b>/&_c", "a&lt;b&gt;/&amp;_c"),
        ("_" * 20, "_" * 10 + "<wbr>" + "_" * 10),
    ],
)
def test_names_may_break_where_they_are_joined(text: str, shown: str) -> None:
    assert breakable(text) == shown


def test_a_summary_is_a_sentence() -> None:
    assert sentence("no update was seen") == "No update was seen."
    assert sentence("train.py holds answers!") == "train.py holds answers!"
    assert sentence("") == ""


def test_values_as_pages_show_them() -> None:
    assert [number(None), number(-1.26), signed(2.0)] == ["–", "−1.3", "+2.0"]
    assert [usd(None), usd(0.0123), usd(1234.5), usd(0.0)] == ["–", "$0.0123", "$1,234.50", "$0.00"]
    assert [clock(3723.9), clock(None)] == ["1:02:03", "–"]
    assert [duration(5.04), duration(245), duration(3720)] == ["5.0 s", "4 min 05 s", "1 h 02 min"]
    assert cut("abcdef", 3) == "abc\n… 3 more characters"
    assert printable("a\u202eb\x1b[31m\ud800") == "a\ufffdb\ufffd[31m\ufffd"


def test_templates_refuse_what_they_are_not_given() -> None:
    with pytest.raises(Exception, match="view"):
        render("overview.html", written="", max_open=1)


def _same_run(root: Path, sweep: str, *, score: float) -> LedgerScene:
    """A sweep whose run has the id and the conditions of every other's of these."""
    scene = LedgerScene(root, sweep=sweep)
    scene.submit(1, 10, score)
    scene.end(20)
    scene.results()
    write_ledger(scene)
    return scene


def test_sweeps_may_hold_runs_of_one_id(tmp_path: Path) -> None:
    _same_run(tmp_path / "results", "first", score=60.0)
    _same_run(tmp_path / "results", "second", score=70.0)
    results, out = load([tmp_path / "results"]), tmp_path / "report"
    best = results.runs.select("run_id", "best_score").rows()
    assert best == [("first-r", 60.0), ("second-r", 70.0)]
    scores = results.submissions.select("run_id", "score").rows()
    assert scores == [("first-r", 60.0), ("second-r", 70.0)]
    assert report.main([str(tmp_path / "results"), "--out", str(out), *QUICK]) == 0
    for name, own in (("first-r", "60.0"), ("second-r", "70.0")):
        assert own in (out / "runs" / f"{name}.html").read_text(encoding="utf-8")
        assert (out / "studies" / name / "summary.json").is_file()
    overview = (out / "index.html").read_text(encoding="utf-8")
    assert all(f'href="runs/{name}.html"' in overview for name in ("first-r", "second-r"))


def test_a_live_report_of_sweeps_that_hold_runs_of_one_id(tmp_path: Path) -> None:
    sweeps = [_same_run(tmp_path, name, score=60.0).sweep.root for name in ("first", "second")]
    out = tmp_path / "report"
    settings = Settings(num_processes=1, with_plots=False, with_studies=False)
    assert live(sweeps, out, settings=settings, interval_s=0.2) == 0
    assert {path.stem for path in (out / "runs").iterdir()} == {"first-r", "second-r"}


def test_a_sweep_and_its_copy_are_refused_by_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [
        _same_run(tmp_path / place, "first", score=60.0).sweep.root for place in ("here", "there")
    ]
    assert report.main([*map(str, folders), "--out", str(tmp_path / "report"), *QUICK]) == 2
    told = capsys.readouterr().err
    assert all(str(folder) in told for folder in folders)


def test_runs_of_two_sweeps_stand_in_one_report(synthetic: SyntheticSweep, tmp_path: Path) -> None:
    other = hostile_sweep(tmp_path)
    results = load([synthetic.folder, other])
    assert results.runs["sweep"].n_unique() == 2
    out = tmp_path / "out"
    words = [str(synthetic.folder), str(other), "--out", str(out), "--no-studies", *QUICK]
    assert report.main(words) == 0
    assert len(list((out / "runs").glob("*.html"))) == results.runs["run_id"].n_unique()


def test_an_account_stands_on_its_page_as_a_models_words(tmp_path: Path) -> None:
    words = "It tried <b>one</b> thing after another, and the second one of them was better."
    out = tmp_path / "out"
    with StandInJudge(lambda asked: Answer(text=words)) as model:
        command = [str(hostile_sweep(tmp_path)), "--out", str(out), *QUICK]
        given = ["--account-url", model.base_url, "--account-model", "teller"]
        assert report.main([*command, *given]) == 0
        assert report.main([*command, *given[:2]]) == 2
    pages = [path.read_text(encoding="utf-8") for path in (out / "runs").glob("*.html")]
    assert pages
    for page in pages:
        assert "Written by teller" in page
        assert "&lt;b&gt;one&lt;/b&gt;" in page
        assert words not in page
    [summary, *_] = (out / "studies").rglob("summary.md")
    assert "&lt;b>one" in summary.read_text(encoding="utf-8")


def _files(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _wait(check: Callable[[], bool], seconds: float = 60.0) -> None:
    waited = threading.Event()
    for _ in range(int(seconds / 0.1)):
        if check():
            return
        waited.wait(0.1)
    pytest.fail("it did not come to be")
