"""Notifications: by command and to URLs, once per event, in parallel with the loop and without secrets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from conftest import Project, wait_until
from prd_support import make_loop
from ralph.core.task_model import CompletionCriteria, Task
from report_support import claude_like, write_agent
from work_support import ALL_MET, Site, external, make_site, task

DONE = "echo '<response>DONE</response>'"
TOKEN = "s3cr3t-t0ken-of-mine"


class Listener:
    """A web server on loopback that records requests. `status` is its answer."""

    def __init__(self, status: int = 200) -> None:
        self.got: list[dict[str, Any]] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                listener.got.append(json.loads(body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self._server.server_port}/{TOKEN}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def listening(status: int = 200) -> Iterator[Listener]:
    listener = Listener(status)
    try:
        yield listener
    finally:
        listener.close()


def kept(project: Project) -> list[dict[str, Any]]:
    """What the command below received on stdin, in order."""
    path = project.path.parent / "told.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def command(project: Project) -> str:
    """A command that records its input, and proves that it has the variables."""
    file = project.path.parent / "told.jsonl"
    return f'test -n "$RALPH_EVENT$RALPH_TITLE$RALPH_MESSAGE$RALPH_DIRECTORY" && {{ cat; echo; }} >> {file}'


def events(project: Project) -> list[str]:
    return [each["event"] for each in kept(project)]


# ---- a run ----


def test_a_finished_run_notifies_by_command_and_url(project: Project) -> None:
    """Both get title and message; the command also gets the facts as JSON."""
    with listening() as listener:
        project.agent(DONE, notify={"urls": [listener.url], "command": command(project)})
        ended = project.run("run", "-p", "x")
    assert ended.code == 0, ended.err
    (got,) = listener.got
    assert got["title"] == "Ralph finished: project" and got["type"] == "success"
    assert "Unverified: no checks configured" in got["message"] and str(project.path) in got["message"]
    (told,) = kept(project)
    run = project.status()[0]["id"]
    assert (told["event"], told["run"], told["outcome"], told["cause"]) == (
        "finished",
        run,
        "complete",
        "unverified",
    )
    assert told["directory"] == str(project.path) and told["iterations"] == 1
    assert f"ralph report {run}" in told["text"]


def test_a_failed_run_notifies(project: Project) -> None:
    """A run that has used up its iterations sends `failed`; `on` selects the events."""
    project.agent("echo no", notify={"command": command(project)})
    assert project.run("run", "-p", "x", "-m", "2").code == 1
    assert [(each["event"], each["cause"]) for each in kept(project)] == [("failed", "iterations")]
    project.agent("echo no", notify={"command": command(project), "on": ["finished"]})
    assert project.run("run", "-p", "x", "-m", "1").code == 1
    assert events(project) == ["failed"], "the second run tells nobody"


def test_the_same_end_is_sent_once_and_another_one_again(project: Project) -> None:
    """A resume that ends differently notifies; one that is refused or changes nothing does not."""
    project.agent("echo no", notify={"command": command(project)})
    project.run("run", "-p", "x", "-m", "1")
    project.run("resume", "-m", "2")
    assert events(project) == ["failed", "failed"]
    project.run("resume", "-m", "2")
    assert len(kept(project)) == 2


def test_an_end_that_was_sent_but_not_journalled_is_not_sent_again(project: Project) -> None:
    """Killed while its end is being sent, the run ends again when it is resumed, without a second message."""
    file = project.path.parent / "told.jsonl"
    project.agent(DONE, notify={"command": f"cat >> {file}; echo >> {file}; kill -9 $(cat {file}.pid)"})
    started = project.start("run", "-p", "x")
    Path(f"{file}.pid").write_text(str(started.pid))
    started.communicate(timeout=30)
    assert started.returncode == -9
    assert len(kept(project)) == 1
    state = project.status()[0]["state"]
    if state == "crashed":
        assert project.run("resume").code == 0
    assert len(kept(project)) == 1


@pytest.mark.slow
def test_a_limit_is_sent_once_with_its_reset(repository: Project) -> None:
    """However often it is tried again; then the end of the run."""
    claude_like(
        repository,
        """
tries = len(list(Path(".git").glob("try*")))
Path(f".git/try{tries}").touch()
limited(1) if tries < 2 else say("<response>DONE</response>")
""",
        notify={"command": command(repository)},
        snapshots=False,
    )
    began = time.time()
    assert repository.run("run", "-p", "x").code == 0
    first, second = kept(repository)
    assert (first["event"], second["event"]) == ("limit", "finished")
    assert began < first["until"] < time.time() and "continues by itself" in first["text"]


def test_a_budget_is_sent_at_eighty_percent(repository: Project) -> None:
    """Once, before it is used up; again for a raised budget."""
    claude_like(
        repository,
        'say("on my way", 0.45)',
        notify={"command": command(repository), "on": ["budget"]},
        snapshots=False,
        maxCostUsd=1.0,
    )
    assert repository.run("run", "-p", "x").code == 1
    (told,) = kept(repository)
    assert told["event"] == "budget" and "$0.90 of $1.00" in told["text"]
    repository.run("resume", "--max-cost-usd", "2")
    assert len(kept(repository)) == 2 and "of $2.00" in kept(repository)[1]["text"]


def test_an_interrupt_sends_nothing(project: Project) -> None:
    """The person who interrupts a run already knows."""
    project.agent("touch here; sleep 30", notify={"command": command(project)})
    started = project.start("run", "-p", "x")
    wait_until((project.path / "here").exists)
    started.terminate()
    time.sleep(0.3)
    started.terminate()
    started.communicate(timeout=30)
    assert started.returncode == 130 and kept(project) == []


# ---- failures ----


def test_a_failing_url_is_one_notice_without_its_secret(project: Project) -> None:
    """The run still completes; the notice comes before the end, which stays the last line."""
    with listening(status=500) as listener:
        project.agent(DONE, notify={"urls": [listener.url, "nonsense"], "command": "exit 3"})
        ended = project.run("run", "-p", "x", "--json")
    assert ended.code == 0
    lines = ended.lines()
    assert lines[-1]["event"] == "run_ended"
    found = [line["text"] for line in lines if line["event"] == "notice" and "Notification" in line["text"]]
    assert len(found) == 2 and "notify.urls: URL" in found[0] and "notify.command: exit code 3" in found[1]
    assert TOKEN not in ended.out + ended.err


def test_damaged_settings_do_not_stop_a_run(project: Project) -> None:
    """A notice says that notifications are off, and the run continues."""
    project.agent("[ -e ok ] && " + DONE, notify={"command": command(project)})
    assert project.run("run", "-p", "x", "-m", "1").code == 1
    (path,) = project.home.path.rglob("notify.json")
    assert path.stat().st_mode & 0o077 == 0, "for its owner alone"
    path.write_text("{")
    (project.path / "ok").touch()
    ended = project.run("resume", "-m", "2")
    assert ended.code == 0 and "No notifications will be sent" in ended.out + ended.err


@pytest.mark.slow
def test_a_command_that_hangs_is_given_up(project: Project) -> None:
    """It delays only the last line, by a few seconds."""
    project.agent(DONE, notify={"command": "trap '' TERM; sleep 300"})
    ended = project.run("run", "-p", "x")
    assert ended.code == 0
    assert "timed out after 10 s" in ended.err + ended.out


def test_a_message_during_a_run_does_not_block_it(repository: Project) -> None:
    """The loop keeps running while a message is being sent."""
    claude_like(
        repository,
        """
Path(f".git/at{n}").touch()
say("<response>DONE</response>" if n == 3 else "no", 0.32)
""",
        notify={"command": "until [ -e .git/at3 ]; do sleep 0.05; done; touch .git/told", "on": ["budget"]},
        snapshots=False,
        maxCostUsd=1.0,
    )
    assert repository.run("run", "-p", "x").code == 0
    assert (repository.path / ".git/told").exists(), (
        "the third iteration came while the message was on its way"
    )


def test_secrets_are_shown_nowhere(project: Project) -> None:
    """Not by `config`, `notify` and `--verbose`, nor in agent output that contains the settings."""
    with listening() as listener:
        project.agent(f"cat .ralph/settings.json; {DONE}", notify={"urls": [listener.url]})
        shown = [project.run(*words) for words in (["config"], ["config", "--json"], ["notify"])]
        shown.append(project.run("run", "-p", "x", "--verbose"))
        shown += [project.run("logs", "--raw"), project.run("report"), project.run("status", "--json")]
    assert all(TOKEN not in each.out + each.err for each in shown)
    assert "json://(redacted)" in shown[0].out
    streams = [path.read_bytes() for path in project.home.path.rglob("*.stdout")]
    assert streams and all(TOKEN.encode() not in data for data in streams)


# ---- the other flows ----


def test_a_waiting_supervised_task_notifies(project: Project) -> None:
    """Exit code 42: it needs a person."""
    project.settings(notify={"command": command(project)}, snapshots=False)
    (project.path / "tasks" / "build").mkdir(parents=True)
    assert project.run("supervise", "tasks/build", "--", "sh", "-c", "exit 42").code == 3
    assert [(each["event"], each["task"], each["flow"]) for each in kept(project)] == [
        ("waiting", "build", "supervise")
    ]


def test_a_prd_loop_reports_how_it_was_approved(project: Project) -> None:
    """An approval at the cap is part of the message."""
    loop = make_loop(project)
    loop.agent("reject('no tests') if mode == 'review' else play()", notify={"command": command(project)})
    assert loop.run("--review-cap", "1").code == 0
    (told,) = kept(project)
    assert told["event"] == "finished" and told["cause"] == "auto_approved"
    assert "auto-approved at the review limit" in told["text"]


@pytest.mark.slow
def test_each_task_notifies_when_it_is_done_or_failed(project: Project) -> None:
    """There is one notification per task, not per role; `ralph work` with nothing to do sends none."""
    site = make_site(project)
    off = {name: {"enabled": False} for name in ("reviewer", "tester", "qa")}
    body = """[ $RALPH_TASK_ID = T-1 ] && sed -i 's/a - b/a + b/' calc.py; echo $n > $RALPH_TASK_ID; promise CODED"""
    site.agents(body, ralph={"agents": off}, notify={"command": command(project)})

    site.add(
        task("T-1"),
        task(
            "T-2",
            coder=external(
                "false",
            ),
            dependencies=("T-1",),
        ),
    )
    assert site.work().code == 1
    assert [(each["event"], each["task"]) for each in kept(project)] == [
        ("finished", "T-1"),
        ("failed", "T-2"),
    ]
    site.work()
    assert len(kept(project)) == 2


# ---- ralph work ----

NO_OTHERS = {name: {"enabled": False} for name in ("reviewer", "tester", "qa")}


def coders(project: Project, body: str, *tasks: Task, judge: str = "", **settings: Any) -> Site:
    """Tasks with only a coder, which prints a Claude Code stream, and the command that records notifications."""
    site = make_site(project)
    program, judging = write_agent(project, body), {}
    if judge:
        judging = {
            "judge": {"agent": {"command": write_agent(project, judge, "judge-like"), "type": "claude"}}
        }
    site.project.settings(
        agent={"command": program, "type": "claude"},
        ralph={"agents": NO_OTHERS} | judging,
        **{"notify": {"command": command(project)}} | settings,
    )
    site.add(*tasks)
    return site


CODES = """
task = os.environ["RALPH_TASK_ID"]
Path("calc.py").write_text("def add(a, b):\\n    return a + b\\n")
Path(task).touch()
say("<promise>CODED</promise>", COST)
"""


@pytest.mark.slow
def test_the_total_budget_of_work_is_sent_at_eighty_percent(project: Project) -> None:
    """Once, when all tasks together reach it; the end of each task is sent separately."""
    site = coders(project, CODES.replace("COST", "0.45"), task("T-1"), task("T-2"), maxCostUsd=1.0)
    done = site.work()
    assert done.code == 0, done.err
    told = kept(project)
    assert sorted(each["event"] for each in told) == ["budget", "finished", "finished"]
    budget = next(each for each in told if each["event"] == "budget")
    assert budget["title"] == "Ralph has used 80% of a budget: project"
    assert "All tasks together used $0.90 of $1.00" in budget["text"]
    assert (budget["task"], budget["flow"], budget["directory"]) == ("", "work", str(project.path))


@pytest.mark.slow
def test_work_whose_budget_is_used_up_notifies(project: Project) -> None:
    """First that it is nearly used up, then that the work has stopped; no task is reported as failed for it."""
    says = CODES.replace("COST", "0.85 if task == 'T-1' else 0.45")
    site = coders(project, says, task("T-1"), task("T-2", dependencies=("T-1",)), maxCostUsd=1.0)
    assert site.work().code == 1
    told = [(each["event"], each["task"]) for each in kept(project)]
    assert sorted(told[:2]) == [("budget", ""), ("finished", "T-1")] and told[2:] == [("failed", "")]
    last = kept(project)[-1]
    assert "the cost budget of `ralph work` is used up" in last["text"] and "ralph work" in last["text"]


@pytest.mark.slow
def test_the_cost_of_a_judge_counts_for_the_total_budget(project: Project) -> None:
    """Its answers about the task and about the merged tree cost money, which counts against the total budget."""
    judged = CompletionCriteria("CODED", "add adds", "semantic", {"check_for": ["it adds"]})
    believes = f"say({ALL_MET!r}, 0.20)"
    site = coders(
        project, CODES.replace("COST", "0.45"), task("T-1", coder=judged), judge=believes, maxCostUsd=1.0
    )
    done = site.work()
    assert done.code == 0, done.err
    budget = next(each for each in kept(project) if each["event"] == "budget")
    assert "$0.85 of $1.00" in budget["text"]


@pytest.mark.slow
def test_a_limit_that_several_tasks_hit_is_sent_once(project: Project) -> None:
    """By the first of them, with the time of the reset; then each task finishes."""
    meets = """
tried = Path(sys.argv[0]).with_name(os.environ["RALPH_TASK_ID"] + ".tried")
if not tried.exists():
    tried.touch()
    limited(1)
"""
    site = coders(project, meets + CODES.replace("COST", "0.0"), task("T-1"), task("T-2"))
    began = time.time()
    done = site.work("-j", "2")
    assert done.code == 0, done.err
    told = kept(project)
    assert sorted(each["event"] for each in told) == ["finished", "finished", "limit"]
    first = told[0]
    assert first["event"] == "limit" and first["run"] and began < first["until"] < time.time()
    assert "continues by itself" in first["text"] and f"task {first['task']}" in first["title"]


@pytest.mark.slow
def test_a_limit_that_lasts_too_long_for_work(project: Project) -> None:
    """It is not waited for: the work stops, and needs a person. Started again at once, it sends nothing new."""
    site = coders(project, "limited(9999)", task("T-1"), maxLimitWaitSeconds=60)
    assert site.work().code == 3
    assert events(project) == ["waiting"]
    assert "ralph work" in kept(project)[0]["text"]
    assert site.work().code == 3
    assert events(project) == ["waiting"]


# ---- testing it ----


def test_the_settings_can_be_tested(project: Project) -> None:
    """`ralph notify --test` sends a message to every target, and reports those that fail."""
    assert project.run("notify", "--test").code == 2
    with listening() as listener:
        project.settings(notify={"urls": [listener.url], "command": command(project)})
        assert project.run("notify").code == 0 and listener.got == []
        done = project.run("notify", "--test")
    assert done.code == 0 and "Sent." in done.err, done.err
    assert [each["title"] for each in listener.got] == ["Ralph: test from project"]
    assert events(project) == ["finished"]
    failed = project.run("notify", "--test")
    assert failed.code == 1 and "not sent: notify.urls" in failed.err and TOKEN not in failed.err
