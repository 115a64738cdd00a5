"""`ralph work` with a judge that cannot work: it stops, and continues with the judge, not with the agent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from conftest import Project, some_rows
from ralph.core.task_model import CompletionCriteria, TaskStatus
from work_support import ALL_MET, CHECK, HONEST, Site, make_site, reviewed, task, with_reviewer

NO_LOGIN = "echo 'invalid api key' >&2; exit 1"
RIGHT = f"echo '{ALL_MET}'"


@pytest.fixture
def site(project: Project) -> Site:
    return make_site(project)


def roles(site: Site) -> list[str]:
    """The role of each run of the task, in order."""
    return [run["role"] for run in site.state()["runs"]]


def notes(site: Site) -> list[list[str]]:
    runs = [run["run"] for run in site.state()["runs"]]
    return [json.loads(site.project.run("status", run, "--json").out)["notes"] for run in runs]


def test_a_judge_without_a_readable_answer_stops_the_work(site: Site) -> None:
    """At the first promise, after three tries, with exit code 2; with another judge only the judge works again."""
    with_reviewer(site, "echo VERIFIED")
    site.add(task(reviewer=reviewed()))
    stopped = site.work()
    why = f"the judge ({site.outside}/judge.sh) gave no readable answer in 3 tries: it is not a single JSON object"
    assert stopped.code == 2
    assert "reviewer: semantic not judged (" in stopped.err and f"Failed: {why}" in stopped.err
    assert (
        "\n  Fix the judge (ralph.judge in the settings) or set ralph.allowDegraded, then: ralph work"
        in stopped.err
    )
    assert site.tasks.find("T-1").status is TaskStatus.REVIEWING
    ((promised, verified, reason),) = site.history("reviewer")
    assert (promised, verified) == (True, False) and why in reason
    assert (len(site.prompts("T-1.reviewer")), len(site.prompts("judge"))) == (1, 3)

    other = site.outside / "other.sh"
    other.write_text(f"#!/bin/sh\necho x >> {site.outside}/asked\n{RIGHT}\n")
    other.chmod(0o755)
    with_reviewer(site, "echo VERIFIED", judge_command=str(other))
    done = site.work()
    assert done.code == 0, done.err
    assert roles(site) == ["coder", "reviewer", "merge"]
    assert (len(site.prompts("T-1.reviewer")), len(site.prompts("judge"))) == (1, 3)
    assert (site.outside / "asked").read_text() == "x\nx\n", "for the review and for the merged tree"
    ((promised, verified, reason),) = site.history("reviewer")
    assert (promised, verified) == (True, True) and reason.endswith("semantic: The criterion is met")
    report = json.loads(site.project.run("report", "T-1", "--json").out)
    assert {remark["kind"] for run in report["runs"] for remark in run["remarks"]} == {"note", "resumed"}
    (iteration,) = report["runs"][1]["iterations"]
    checks = [(found["check"], found["degraded"]) for found in iteration["checks"]]
    assert checks == [("protected files", False), ("reviewer: semantic", False)]


@pytest.mark.parametrize(
    ("command", "why"),
    some_rows(
        [
            (
                "judge-that-is-missing",
                "could not be started: judge-that-is-missing: command not found",
            ),
            ("", "is not logged in or has no credit: invalid api key; log in, or set another ralph.judge"),
        ],
        2,
    ),
)
def test_a_judge_that_cannot_work_is_not_asked_twice(site: Site, command: str, why: str) -> None:
    """The work stops at once and says whose failure it is; when the judge can work, no agent starts again."""
    with_reviewer(site, NO_LOGIN, judge_command=command)
    site.add(task(reviewer=reviewed()))
    stopped = site.work("--json")
    assert stopped.code == 2
    (end,) = [each for each in events(stopped.out) if each["event"] == "run_ended" and each["exit_code"] == 2]
    assert end["stop"]["cause"] == ("judge" if command else "auth")
    assert end["stop"]["reason"].startswith("the judge (") and end["stop"]["reason"].endswith(f") {why}")
    assert len(site.prompts("judge")) == (0 if command else 1)
    with_reviewer(site, RIGHT)
    assert site.work().code == 0
    assert len(site.prompts("T-1.reviewer")) == 1


def events(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.slow
def test_degraded_verdicts_that_are_allowed_decide(site: Site) -> None:
    """The promise counts, no run stops, and the outcome says so."""
    with_reviewer(site, "echo VERIFIED", allowDegraded=True)
    site.add(task(reviewer=reviewed()))
    assert site.work().code == 0
    assert "(degraded)" in site.history("reviewer")[0][2]
    assert [each for each in notes(site) if each] == [["degraded: reviewer: semantic"]] * 2


def test_degraded_verdicts_may_be_allowed_after_the_judge_failed(site: Site) -> None:
    """The next `ralph work` accepts the promise that was made, without another start of the agent."""
    with_reviewer(site, NO_LOGIN)
    site.add(task(reviewer=reviewed()))
    assert site.work().code == 2
    with_reviewer(site, NO_LOGIN, allowDegraded=True)
    assert site.work().code == 0
    assert len(site.prompts("T-1.reviewer")) == 1
    assert site.history("reviewer")[0][1] is True
    assert [each for each in notes(site) if each] == [["degraded: reviewer: semantic"]] * 2


@pytest.mark.slow
def test_a_role_that_is_now_verified_in_another_way_starts_again(site: Site) -> None:
    """A task that was changed to get along without its judge does not wait for that judge; earlier work is kept."""
    coder = CompletionCriteria("CODED", "add adds", "semantic", {"check_for": ["add adds"]})
    with_reviewer(site, "echo VERIFIED")
    site.add(task(coder=coder))
    assert site.work().code == 2
    changed = CompletionCriteria("CODED", "add adds", "external", {"command": CHECK})
    site.tasks.put(
        task(
            coder=changed, reviewer=replace(changed, promise="REVIEW_PASSED"), status=TaskStatus.IMPLEMENTING
        )
    )
    assert site.work().code == 0
    assert roles(site) == ["coder", "coder", "reviewer", "merge"] and site.is_fixed()


@pytest.mark.slow
def test_a_red_check_next_to_a_failed_judge_is_fixed_first(site: Site) -> None:
    """The coder gets the output of the red check; the work stops when only the judge is missing."""
    body = HONEST.replace("coder) ", "coder) [ $n = 0 ] && { echo x > new.txt; promise CODED; exit; }; ")
    stages = [
        {"name": "criteria", "method": "semantic", "config": {"check_for": ["add adds"]}},
        {"name": "works", "method": "external", "config": {"command": CHECK}},
    ]
    with_reviewer(site, "echo VERIFIED", body)
    site.add(task(coder=CompletionCriteria("CODED", "", "multi_stage", {"stages": stages})))
    stopped = site.work()
    assert stopped.code == 2 and "Failed: the judge (" in stopped.err
    assert len(site.prompts("T-1.coder")) == 2 and "AssertionError" in site.prompts("T-1.coder")[1]
    with_reviewer(site, RIGHT, body)
    assert site.work().code == 0
    assert len(site.prompts("T-1.coder")) == 2


@pytest.mark.slow
def test_a_merge_whose_judge_fails_is_repeated_alone(site: Site) -> None:
    """The proved task stays proved: the merged tree is judged again by the next `ralph work`."""
    with_reviewer(site, f"[ $n = 0 ] && {{ {RIGHT}; exit; }}; {NO_LOGIN}")
    site.add(task(reviewer=reviewed()))
    stopped = site.work("-j", "2")
    assert stopped.code == 2
    assert "reviewer: semantic: not judged (the judge (" in stopped.err
    assert roles(site) == ["coder", "reviewer", "merge"] and not site.is_fixed()
    with_reviewer(site, RIGHT)
    assert site.work().code == 0
    assert roles(site) == ["coder", "reviewer", "merge", "merge"] and site.is_fixed()
