"""`ralph report`: write a report about a run or a task, as HTML, Markdown or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.commands.common import complete_run, newest_run, open_home
from ralph.errors import RalphError

if TYPE_CHECKING:
    from ralph.scm.history import History
    from ralph.store.home import Home
    from ralph.store.runs import Run
    from ralph.views.report.gather import OpenHistory
    from ralph.views.report.model import Report

MAX_GIT_BYTES = 8 << 20
"""Maximum bytes of git output to read; a report shows less."""


@click.command()
@click.argument("name", metavar="[RUN|TASK]", required=False, shell_complete=complete_run)
@click.option("--html", metavar="FILE", help="Write a self-contained HTML page (-: stdout).")
@click.option("--md", metavar="FILE", help="Write Markdown (-: stdout).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(name: str | None, html: str | None, md: str | None, as_json: bool) -> int:
    """Write a report about a run or a task: outcome, proof, time, cost, verdicts, reviews, diffs.

    Without RUN, report on the newest run in this directory. Without an option, the report is shown in the
    terminal, or printed as Markdown if stdout is not a terminal. The HTML page loads nothing and runs no script,
    so you can send, archive and print it.

    \b
    ralph report
    ralph report 7f3a --html report.html
    ralph report TASK-001 --md report.md
    """
    if sum((html is not None, md is not None, as_json)) > 1:
        raise RalphError("--html, --md and --json cannot be used together.", "Choose one of them.")
    from ralph.views.report.markdown import markdown

    report = _gather(open_home(), name)
    if html is not None:
        from ralph.views.report.page import page

        _write(html, page(report))
    elif md is not None:
        _write(md, markdown(report))
    elif as_json:
        from msgspec import to_builtins

        click.echo(json.dumps(to_builtins(report), indent=2, ensure_ascii=False))
    else:
        _show(markdown(report))
    return 0


def _gather(home: Home, name: str | None) -> Report:
    from ralph.runs.location import here
    from ralph.views.report.gather import ReportSources, report_of_run, report_of_task

    runs = home.runs()
    sources = ReportSources(home, runs, _histories(home))
    if name is None:
        return report_of_run(sources, newest_run(runs))
    tasks = home.tasks(here(Path.cwd()).project)
    if task := tasks.get(name):
        return report_of_task(sources, tasks.project, task, tasks.progress(task.id))
    return report_of_run(sources, runs.find(name))


def _histories(home: Home) -> OpenHistory:
    """Return a function that opens a run's history. Git runs under a warden, which views cannot start."""
    from ralph.runs.repository import opened_repository
    from ralph.scm.history import History

    @contextmanager
    def history(run: Run) -> Iterator[History]:
        with opened_repository(home, run, MAX_GIT_BYTES) as opened:
            yield History(opened.repository, opened.run, run.id, opened.scratch)

    return history


def _write(file: str, text: str) -> None:
    data = text.encode(errors="replace")
    if file == "-":
        sys.stdout.buffer.write(data)
        return
    Path(file).write_bytes(data)
    click.echo(f"Written to {file}", err=True)


def _show(text: str) -> None:
    """Print the report, formatted on a terminal and as plain Markdown otherwise."""
    if not sys.stdout.isatty():
        _write("-", text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text, hyperlinks=False))
