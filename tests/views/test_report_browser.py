"""The HTML report in a real browser: it runs no script, makes no request, and fits a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser_support import BROWSER, Browser, browser
from conftest import Project
from report_support import capped_prd, claude_like, complete_run, failed_task

pytestmark = BROWSER

HOSTILE = """
Path("<svg onload=alert(1)>.txt").write_text("<script>fetch('http://evil.example')</script>\\n" + "x" * 5000)
say("<script>document.title='owned'</script><img src=http://evil.example/a.png> \\u202eabc \\x1b[31m" + "y" * 3000
    + "<link rel=stylesheet href=http://evil.example/a.css><style>@import url(http://evil.example/b.css)</style>"
    + "<response>DONE</response>", 0.2, 100, 20)
"""


def _repository(project: Project) -> Project:
    (project.path / "README.md").write_text("A project.\n")
    project.git("init", "-q", "-b", "main")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "First")
    return project


def _run(project: Project) -> list[str]:
    return [complete_run(_repository(project))]


def _task(project: Project) -> list[str]:
    failed_task(project)
    return ["T-1"]


def _prd(project: Project) -> list[str]:
    capped_prd(project)
    return []


def _hostile(project: Project) -> list[str]:
    claude_like(_repository(project), HOSTILE)
    assert project.run("run", "-p", "<script>alert(1)</script>").code == 0
    return []


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


MAKERS = {"run": _run, "task": _task, "prd": _prd, "hostile": _hostile}


def make_page(project: Project, name: str) -> Path:
    """Write the HTML report of a real run."""
    words = MAKERS[name](project)
    path = project.path.parent / f"{name}.html"
    done = project.run("report", *words, "--html", str(path))
    assert done.code == 0, done.err
    return path


@pytest.mark.parametrize("name", MAKERS)
def test_a_page_fits_and_is_quiet(project: Project, chromium: Browser, name: str) -> None:
    """No errors, no requests besides the file itself, and nothing wider than the screen, folded or not."""
    page = make_page(project, name)
    chromium.asked.clear()
    chromium.errors.clear()
    for width, dark in ((1200, False), (390, False), (390, True), (320, True)):
        chromium.open(page, width, dark=dark)
        assert chromium.evaluate("document.documentElement.scrollWidth") <= width
        chromium.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert chromium.evaluate("document.documentElement.scrollWidth") <= width
        picture = project.path.parent / f"{width}-{dark}.png"
        chromium.photograph(picture)
        assert picture.stat().st_size > 20_000
    assert set(chromium.asked) == {page.as_uri()}
    assert chromium.errors == []
    assert chromium.evaluate("document.scripts.length + document.images.length") == 0
    assert "owned" not in chromium.evaluate("document.title")


def test_print_and_dark_mode(project: Project, chromium: Browser) -> None:
    """Light or dark as the reader prefers; folded parts are printed."""
    page = make_page(project, "hostile")
    colours = []
    for dark in (True, False):
        chromium.open(page, 1200, dark=dark)
        colours.append(chromium.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(25, 24, 23)", "rgb(251, 250, 247)"]
    hidden = "[...document.querySelectorAll('details pre')].filter(each => !each.checkVisibility()).length"
    assert chromium.evaluate(hidden) > 0
    chromium.call("Emulation.setEmulatedMedia", media="print")
    assert chromium.evaluate(hidden) == 0
    assert len(chromium.call("Page.printToPDF")["data"]) > 20_000
    chromium.call("Emulation.setEmulatedMedia", media="")


def test_a_script_does_not_run(project: Project, chromium: Browser) -> None:
    """Even if a script got into the page, its policy forbids it."""
    page = make_page(project, "hostile")
    text = page.read_text().replace("</main>", "<script>document.title = 'owned'</script></main>")
    page.write_text(text)
    chromium.open(page, 1200)
    assert "owned" not in chromium.evaluate("document.title")
    assert any("Content Security Policy" in error for error in chromium.errors)
    chromium.errors.clear()
