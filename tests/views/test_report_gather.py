"""The contents of reports on real runs: outcome, proof, time, cost, reviews, omissions."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import time
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec.structs import replace

from conftest import Project, wait_until
from ralph.core import machine
from ralph.core.model import (
    AgentSpec,
    Cause,
    Check,
    Checked,
    Did,
    Ended,
    FailAction,
    Feedback,
    Flow,
    Left,
    Plan,
    PromptSource,
    Purpose,
    Ran,
    RunAgent,
    RunChecks,
    Stop,
    Usage,
    Verdict,
)
from ralph.store.journal import Journal
from report_support import capped_prd, complete_run, failed_task, report_json

HOSTILE = (
    "<script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>"
    "\x1b[31mred\x1b]0;title\x07 \u202egnp.exe \x00 \udcff [click](javascript:alert(1)) ```\n# heading\n| a | b |"
)


# ---- contents ----


@pytest.mark.slow
def test_a_run_with_proof_limit_and_cost(repository: Project) -> None:
    """The report has the claim, commands, tree and commit, and each iteration's checks, feedback, cost and diff."""
    run = complete_run(repository)
    report = report_json(repository)
    one = report["runs"][0]
    assert (report["id"], report["outcome"], report["cause"], report["count"]) == (
        run,
        "complete",
        "proved",
        3,
    )
    proof = one["proof"]
    assert "<response>DONE</response>" in proof["claim"]
    assert [check["green"] for check in proof["checks"]] == [True, True, True]
    assert proof["checks"][0]["command"].endswith("check.py")
    assert proof["snapshot"] == f"refs/ralph/{run}/4"
    assert proof["tree"] == repository.git("rev-parse", f"refs/ralph/{run}/4^{{tree}}").strip()
    assert proof["commit"] == repository.git("rev-parse", "HEAD").strip()
    first, second, third = one["iterations"]
    assert (first["claim"], second["claim"], third["claim"]) == (True, False, True)
    assert not first["checks"][0]["green"] and "cases pass" in first["checks"][0]["feedback"]["text"]
    assert [segment["doing"] for segment in third["segments"]][:3] == ["agent", "limit", "agent"]
    assert "+    return '-'.join(text.lower().split())" in second["changes"]["diff"]["text"]
    assert first["changes"]["files"] == [{"path": "slug.py", "added": 4, "removed": 0}]
    costs = [each["used"]["cost_usd"] for each in one["iterations"]]
    assert costs == pytest.approx([0.031, 0.044, 0.06]) and report["used"]["cost_usd"] == pytest.approx(
        sum(costs)
    )
    (limit,) = [each for each in one["remarks"] if each["kind"] == "limit"]
    assert "You've hit your usage limit; waited" in limit["text"] and limit["iteration"] == 3
    assert one["said"]["text"].startswith("Accented letters")


@pytest.mark.slow
def test_a_failed_task_with_its_role_history(project: Project) -> None:
    """The report has every run of every role, its result, and why the task was sent back."""
    failed_task(project)
    report = report_json(project, "T-1")
    assert (report["subject"], report["state"], report["outcome"]) == ("task", "failed", "")
    assert [(each["by"], each["what"]) for each in report["reviews"]] == [
        ("coder", "proved"),
        ("reviewer", "refused"),
    ] * 4
    assert "There is no test of add()" in report["reviews"][1]["text"]
    assert report["task"]["sent_back"] == 3 and report["task"]["criteria"] == ["add(2, 3) is 5"]
    assert report["runs"][0]["iterations"][0]["changes"]["added"] == 2
    out = project.run("report", "T-1").out
    assert out.startswith("# Make add add\n\n**failed**") and "reviewer** refused" in out


def test_a_prd_loop_with_reviews_and_reservations(project: Project) -> None:
    """Undone edits and stories approved only at the cap are noted at the top."""
    capped_prd(project)
    report = report_json(project)
    one = report["runs"][0]
    assert report["cause"] == "auto_approved" and report["title"] == "2 of 2 stories done"
    kinds = {each["kind"] for each in one["remarks"]}
    assert {"undone", "auto_approved"} <= kinds
    assert [(s["id"], s["at_cap"], s["reviews"]) for s in one["stories"]] == [
        ("US-001", False, 1),
        ("US-002", True, 2),
    ]
    assert [(each["subject"], each["what"]) for each in report["reviews"]][-3:] == [
        ("US-002", "changes_requested"),
        ("US-002", "needs_review"),
        ("US-002", "approved"),
    ]
    assert one["proof"]["checks"][0]["command"] == "true"
    assert "complete, with reservations" in project.run("report").out


def test_a_running_and_a_crashed_run(project: Project) -> None:
    """The current iteration is listed; after a kill, the report says how to continue."""
    project.agent("echo here; touch here; sleep 60")
    started = project.start("run", "-p", "x")
    wait_until((project.path / "here").exists)
    report = report_json(project)
    assert report["state"] == "running" and report["outcome"] == ""
    (iteration,) = report["runs"][0]["iterations"]
    assert iteration["is_open"] and iteration["segments"][0]["is_open"]
    assert "Still running" in project.run("report").out
    started.send_signal(signal.SIGKILL)
    started.communicate()
    out = project.run("report").out
    assert "**crashed**" in out and f"ralph resume {report['id']}" in out


def test_a_supervised_run_and_guidance(project: Project) -> None:
    """The report has attempts, restarts and guidance."""
    (project.path / "t").mkdir()
    project.settings(snapshots=False)
    script = "n=$(ls t | wc -l); touch t/$n; [ $n -ge 2 ] && touch t/DONE; exit 1"
    assert project.run("supervise", "t", "--restart-delay", "0.1", "--", "sh", "-c", script).code == 0
    report = report_json(project, project.status()[0]["id"])
    one = report["runs"][0]
    assert one["flow"] == "supervise" and one["proof"]["claim"] == "the file DONE exists"
    assert any(s["doing"] == "restart" for each in one["iterations"] for s in each["segments"])


@pytest.mark.slow
def test_a_resumed_run_shows_the_gap(project: Project) -> None:
    """The time between a kill and the resume is not working time."""
    project.agent("[ -e second ] && echo '<response>DONE</response>' || { touch first; sleep 60; }")
    started = project.start("run", "-p", "x")
    wait_until((project.path / "first").exists)
    started.send_signal(signal.SIGKILL)
    started.communicate()
    time.sleep(2.5)
    (project.path / "second").touch()
    run = project.status()[0]["id"]
    project.run("steer", run, "be quick")
    assert project.run("resume").code == 0
    one = report_json(project)["runs"][0]
    segments = [segment["doing"] for each in one["iterations"] for segment in each["segments"]]
    assert "away" in segments and "resumed" in {each["kind"] for each in one["remarks"]}
    assert [(each["text"], each["iteration"]) for each in one["guidance"]] == [("be quick", 1)]


def test_unknown_names_are_errors(project: Project) -> None:
    """A report on something unknown is an error that names it."""
    failed = project.run("report", "nonsense")
    assert failed.code == 2 and "There is no run 'nonsense'" in failed.err
    assert project.run("report").code == 2
    assert project.run("report", "--json", "--md", "x").code == 2


# ---- big runs ----


def big_run(project: Project, iterations: int, text: str) -> str:
    """Write a run with this many iterations into the journal, as the loop would."""
    runs = project.home.runs()
    spec = AgentSpec("claude", "claude", "claude")
    where = str(project.path)

    def plan(id: str) -> Plan:
        check = Check("make test", "command", '{"command":"make test"}')
        return Plan(id, Flow.RUN, where, (spec,), PromptSource(text=text), checks=(check,), snapshots=False)

    run = runs.create(plan(""), where, where)
    journal = Journal(runs.db, runs.path, run.id)
    state = machine.start(plan(run.id), run.created)
    at = run.created
    for number in range(1, iterations + 1):
        at += 10
        step = RunAgent(Purpose.WORK, number, "claude", "", Left())
        journal.begin(step, at)
        ran = Ran(
            at + 5, Ended.OK, "claude", 5.0, False, Usage(0.1, 10, 5), exit=0, text=text, detail=text[:50]
        )
        journal.complete(step, ran, state)
        check = RunChecks(number, ("make test",))
        journal.begin(check, at + 5)
        verdict = Verdict("make test", green=False, reason=text, feedback=Feedback(FailAction.APPEND, text))
        journal.complete(check, Checked(at + 7, 2.0, (verdict,)), state)
        if number % 100 == 0:
            journal.flush()
    stop = Stop(Cause.ITERATIONS, text, (text,))
    journal.begin(stop, at + 8)

    journal.complete(stop, Did(at + 9), replace(state, stop=stop, iteration=iterations, now=at + 9))
    journal.flush()
    runs.let_go(run.id)
    runs.db.close()
    return run.id


@pytest.mark.slow
def test_a_thousand_iterations_stay_small(project: Project) -> None:
    """All iterations have numbers, some have texts; omissions are listed with the command that shows them."""
    run = big_run(project, 1200, "line\n" * 2000)
    streams = project.home.make_streams(run)
    with (streams / "001-1.work.stdout").open("wb") as stream:
        stream.truncate(200 << 20)
    done = project.run("report", "--html", "big.html")
    assert done.code == 0, done.err
    size = (project.path / "big.html").stat().st_size
    assert size < 6 << 20, size
    text = (project.path / "big.html").read_text()
    assert "iterations in the middle of run" in text and f"ralph logs {run} --iteration N" in text
    assert text.count('class="row"') <= 40
    one = report_json(project)["runs"][0]
    assert one["count"] == 1200 and one["left_out"] == 200 and len(one["iterations"]) == 1000
    assert one["iterations"][500]["is_short"] and not one["iterations"][-1]["is_short"]


@pytest.mark.slow
def test_a_diff_of_ten_megabytes_is_cut_with_a_note(repository: Project) -> None:
    """Every file gets a share of the diff, and the command for the full diff is named."""
    body = "yes 'a line of a very long file' | head -n 400000 > long.txt; echo short > short.txt"
    repository.agent(f"{body}; echo '<response>DONE</response>'", snapshots=True)
    assert repository.run("run", "-p", "x").code == 0
    (iteration,) = report_json(repository)["runs"][0]["iterations"]
    changes = iteration["changes"]
    assert changes["count"] == 2 and changes["added"] == 400_001
    assert len(changes["diff"]["text"]) < 60_000 and "+short" in changes["diff"]["text"]
    assert "1 more file not shown" in changes["diff"]["text"]
    assert re.fullmatch(r"ralph diff \S+ 1", changes["diff"]["see"]) and changes["diff"]["left_out"]


# ---- hostile text ----


class _Tags(HTMLParser):
    """Collects the elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links |= {value or "" for name, value in attrs if name in ("href", "src")}


def test_hostile_text_is_harmless_in_every_form(project: Project) -> None:
    """It adds no element, control character or override, and cannot break fences and tables."""
    text = HOSTILE.replace("\udcff", "\ufffd") + "x" * 100_000
    run = big_run(project, 2, text)
    assert project.run("report", run, "--html", "h.html").code == 0
    html = (project.path / "h.html").read_text()
    tags = _Tags()
    tags.feed(html)
    assert not tags.tags & {"script", "img", "iframe", "object", "link", "base", "form"}
    assert not {name for name in tags.attributes if name.startswith("on") or name == "style"}
    assert all(link.startswith("#") for link in tags.links)
    assert "default-src &#39;none&#39;; style-src &#39;sha256-" in html
    md, as_json = project.run("report", run).out, project.run("report", run, "--json").out
    for form in (html, md, json.dumps(json.loads(as_json), ensure_ascii=False)):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", form)
        assert max(map(len, form.splitlines())) < 3_000 or form.startswith("{")
    tokens = list(_flat(MarkdownIt("commonmark", {"html": True}).enable("table").parse(md)))
    assert not {token.type for token in tokens} & {"html_block", "html_inline", "link_open", "image"}
    headings = [token for token in tokens if token.type == "heading_open" and token.tag == "h1"]
    assert len(headings) == 1


def _flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or [])


def test_hostile_file_names(repository: Project) -> None:
    """A path is escaped like any other text."""
    name = "<img src=x onerror=alert(1)>\n\x1b[31m"
    body = f"printf x > \"$(printf '%s' '{name}')\"; echo '<response>DONE</response>'"
    repository.agent(body, snapshots=True)
    assert repository.run("run", "-p", "x").code == 0
    done = repository.run("report", "--html", "-")
    assert "<img" not in done.out and "\x1b" not in done.out and "&lt;img" in done.out


def test_secrets_in_files_and_prompts_are_redacted(repository: Project) -> None:
    """A token that an agent writes into a file is redacted in the diff."""
    token, value = "ghp_" + "a1B2" * 9, "correct-horse-battery"
    body = f"echo 'key = {token} {value}' > config.py; echo '<response>DONE</response>'"
    repository.agent(body, snapshots=True)
    repository.extra_env["SHOP_PASSWORD"] = value
    assert repository.run("run", "-p", f"Put {token} into config.py").code == 0
    for form in ("--html", "--md"):
        shown = repository.run("report", form, "-").out
        assert "config.py" in shown and "+key = [redacted]" in shown
        assert token not in shown and value not in shown
    assert token not in repository.run("report", "--json").out


def test_the_sandbox_and_a_missing_one_are_reported(repository: Project) -> None:
    """A run without the sandbox it should have had says so in its remarks."""
    repository.agent("echo '<response>DONE</response>'", snapshots=False)
    assert repository.run("run", "-p", "x").code == 0
    assert "- sandbox: none\n" in repository.run("report").out
    db = sqlite3.connect(repository.home.database)
    why = "bubblewrap: bwrap is not installed"
    db.execute(
        "UPDATE journal SET body = json_set(body, '$.sandbox', json(?)) WHERE kind = 'plan'",
        (json.dumps({"downgraded": why}),),
    )
    db.commit()
    db.close()
    found = report_json(repository)["runs"][0]
    assert found["sandbox"] == f"none ({why})"
    assert [(each["kind"], why in each["text"]) for each in found["remarks"]] == [("degraded", True)]


@pytest.mark.slow
def test_the_three_forms_agree(repository: Project) -> None:
    """HTML, Markdown and JSON are made from one value and show the same numbers."""
    run = complete_run(repository)
    html, md = repository.run("report", "--html", "-").out, repository.run("report", "--md", "-").out
    report = report_json(repository)
    for word in (run, report["runs"][0]["proof"]["tree"], report["runs"][0]["proof"]["snapshot"], "$0.14"):
        assert word in html and word in md


def test_a_damaged_store_is_an_error(project: Project) -> None:
    """The error says what is wrong, without a traceback."""
    project.agent("echo '<response>DONE</response>'")
    project.run("run", "-p", "x")
    db = sqlite3.connect(project.home.database)
    db.execute("UPDATE journal SET result = '{' WHERE kind = 'run_agent'")
    db.commit()
    db.close()
    failed = project.run("report")
    assert failed.code == 2 and "Traceback" not in failed.err and "journal" in failed.err
