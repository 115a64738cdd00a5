"""The files of a run in `.ralph` and next to the journal."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import Project
from ralph.errors import RalphError
from ralph.store import runtime as module
from ralph.store.runtime import Capped, Runtime, log_slugs


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    """The runtime files of a project in `tmp_path`."""
    with Runtime(tmp_path) as found:
        yield found


def tree(path: Path) -> dict[str, str]:
    """Every file below a directory with its content."""
    return {str(f.relative_to(path)): f.read_text() for f in sorted(path.rglob("*")) if f.is_file()}


# ---- preparing ----


def test_a_project_gets_its_directory_and_an_ignore_file(tmp_path: Path, runtime: Runtime) -> None:
    """`.ralph` is created with an ignore file and the id of the run."""
    runtime.prepare("run-1")
    assert set(tree(tmp_path)) == {".ralph/.gitignore", ".ralph/current_run"}
    assert (tmp_path / ".ralph/current_run").read_text() == "run-1"


def test_git_sees_the_settings_and_nothing_else(repository: Project) -> None:
    """After runs with prompts, logs, temporaries and local settings, git shows only the settings."""
    repository.agent("echo hm", guardrails=[{"command": "false"}])
    (repository.path / ".ralph/settings.local.json").write_text("{}")
    for _ in range(2):
        repository.run("run", "-p", "x", "-m", "2")
    (repository.path / ".ralph/.tmp-1-prompt_001.txt").touch()
    (repository.path / ".ralph/state").mkdir()
    (repository.path / ".ralph/state/ralph.db").touch()
    made = tree(repository.path / ".ralph")
    assert {".gitignore", "prompt_001.txt", "prompt_002.txt", "guardrail_001_false.log"} <= set(made)
    assert any(name.startswith("old/") for name in made)
    shown = repository.git("status", "--porcelain", "-uall").splitlines()
    assert shown == ["?? .ralph/settings.json", "?? agent.sh"]


def test_an_ignore_file_of_the_user_stays(tmp_path: Path, runtime: Runtime) -> None:
    """The user's `.ralph/.gitignore` is not replaced."""
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph/.gitignore").write_text("mine\n")
    runtime.prepare("run-1")
    assert (tmp_path / ".ralph/.gitignore").read_text() == "mine\n"


def test_an_earlier_runs_files_are_moved_away(tmp_path: Path, runtime: Runtime) -> None:
    """Prompts and logs of the previous run are moved to `old/<run>/`; settings and other files stay."""
    runtime.prepare("run-1")
    runtime.write_prompt("001", "first")
    runtime.open_log("guardrail_001_make.log").close()
    (tmp_path / ".ralph/settings.json").write_text("{}")
    (tmp_path / ".ralph/notes.txt").write_text("mine")
    runtime.prepare("run-2")
    runtime.write_prompt("001", "second")
    assert tree(tmp_path / ".ralph") == {
        ".gitignore": module._GITIGNORE.decode(),
        "current_run": "run-2",
        "notes.txt": "mine",
        "old/run-1/guardrail_001_make.log": "",
        "old/run-1/prompt_001.txt": "first",
        "prompt_001.txt": "second",
        "settings.json": "{}",
    }


def test_a_resumed_run_keeps_its_files(tmp_path: Path, runtime: Runtime) -> None:
    """Preparing the same run again moves nothing."""
    runtime.prepare("run-1")
    runtime.write_prompt("001", "first")
    runtime.prepare("run-1")
    assert (tmp_path / ".ralph/prompt_001.txt").read_text() == "first"
    assert not (tmp_path / ".ralph/old").exists()


def test_files_of_an_unknown_run_go_to_unknown(tmp_path: Path, runtime: Runtime) -> None:
    """Logs of an unknown run are kept too."""
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph/guardrail_001_x.log").write_text("old")
    runtime.prepare("run-1")
    assert (tmp_path / ".ralph/old/unknown/guardrail_001_x.log").read_text() == "old"


@pytest.mark.parametrize("content", ["../../../outside", "/etc", "..", "a/b\0c", "\n"])
def test_the_earlier_run_is_only_a_name(tmp_path: Path, content: str) -> None:
    """Whatever `current_run` contains, nothing is moved out of `.ralph/old`."""
    project = tmp_path / "project"
    (project / ".ralph").mkdir(parents=True)
    (project / ".ralph/current_run").write_text(content)
    (project / ".ralph/prompt_001.txt").write_text("x")
    with Runtime(project) as runtime:
        runtime.prepare("run-1")
    assert os.listdir(tmp_path) == ["project"]
    (target,) = (project / ".ralph/old").iterdir()
    assert [file.name for file in target.iterdir()] == ["prompt_001.txt"]


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path, runtime: Runtime) -> None:
    """A half-written file of a dead process is gone after the next start."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    (tmp_path / ".ralph").mkdir()
    (tmp_path / f".ralph/.tmp-{dead.pid}-prompt_001.txt").write_text("half")
    runtime.prepare("run-1")
    assert sorted(os.listdir(tmp_path / ".ralph")) == [".gitignore", "current_run"]


def test_a_prompt_file_of_the_user_stays_where_it_is(project: Project) -> None:
    """A prompt that the user keeps in `.ralph` is read, and neither moved nor lost."""
    project.agent("echo '<response>DONE</response>'")
    own = project.path / ".ralph/prompt_main.txt"
    own.write_text("Do the work")
    result = project.run("run", "-f", ".ralph/prompt_main.txt")
    assert (own.exists(), result.code) == (True, 0), result.out


@pytest.mark.parametrize("kind", ["link", "fifo", "file"])
def test_something_else_in_place_of_the_run_id(tmp_path: Path, runtime: Runtime, kind: str) -> None:
    """`current_run` of any file type is replaced, and nothing is written through a link."""
    (tmp_path / "outside").write_text("precious")
    (tmp_path / ".ralph").mkdir()
    place = tmp_path / ".ralph/current_run"
    makers: dict[str, Callable[[], object]] = {
        "link": lambda: place.symlink_to(tmp_path / "outside"),
        "fifo": lambda: os.mkfifo(place),
        "file": lambda: place.write_bytes(b"\xff" * 100_000),
    }
    makers[kind]()
    runtime.prepare("run-1")
    assert (tmp_path / "outside").read_text() == "precious"
    assert (place.is_symlink(), place.read_text()) == (False, "run-1")


def test_a_directory_in_place_of_the_run_id(project: Project) -> None:
    """A directory named `current_run` is refused with a message: it may be someone's work."""
    project.agent("echo '<response>DONE</response>'")
    (project.path / ".ralph/current_run/work").mkdir(parents=True)
    result = project.run("run", "-p", "x")
    assert result.code == 2
    assert "current_run" in result.err and "unexpected" not in result.err


def test_a_project_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """The error names a directory that cannot be opened."""
    with pytest.raises(RalphError, match=r"nowhere cannot be used: No such file or directory\.$"):
        Runtime(tmp_path / "nowhere")


# ---- prompts ----


@pytest.mark.parametrize("text", ["", "plain", "é 🦀 \0 \x1b", "x" * 3_000_000])
def test_a_prompt_is_kept_and_read_back(tmp_path: Path, runtime: Runtime, text: str) -> None:
    """The prompt that an agent reads from stdin is exactly the text that was sent, byte for byte."""
    path = runtime.write_prompt("001", text)
    assert path == ".ralph/prompt_001.txt"
    with os.fdopen(runtime.open_prompt(path), "rb") as file:
        assert file.read() == text.encode()


def test_writing_goes_to_the_directory_that_was_opened(tmp_path: Path) -> None:
    """After the project was moved and replaced by a link, its files are still written to the project."""
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.mkdir()
    with Runtime(project) as runtime:
        project.rename(tmp_path / "moved")
        project.symlink_to(outside)
        runtime.prepare("run-1")
        runtime.write_prompt("001", "x")
        runtime.open_log("guardrail_001_x.log").close()
    assert list(outside.iterdir()) == []
    assert {"prompt_001.txt", "guardrail_001_x.log"} < set(os.listdir(tmp_path / "moved/.ralph"))


# ---- logs and streams ----


def test_a_log_starts_empty(tmp_path: Path, runtime: Runtime) -> None:
    """The log of a repeated iteration has nothing of the first attempt."""
    for text in (b"a long first attempt", b"second"):
        log = runtime.open_log("guardrail_001_x.log")
        log.write(text)
        log.close()
    assert (tmp_path / ".ralph/guardrail_001_x.log").read_bytes() == b"second"


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("first", True),
        ("1 failed", True),
        ("äö", True),
        ("end of it", True),
        ("\n2 ", True),
        ("never", False),
    ],
)
def test_the_whole_log_is_searched(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, text: str, is_there: bool
) -> None:
    """A text is found anywhere, across the borders of pieces and through colours."""
    log = runtime.open_log("guardrail_001_x.log")
    log.write(
        b"first\n" + b"." * 5000 + "1 \x1b[31mfailed\x1b[0m\näö\r\n2 ".encode() + b"." * 5000 + b"end of it"
    )
    log.close()
    for size in (7, 64, 1 << 20):
        monkeypatch.setattr(module, "_PIECE", size)
        assert runtime.has_logged(".ralph/guardrail_001_x.log", text) is is_there


@pytest.mark.parametrize("kind", ["link", "hard link", "fifo"])
def test_a_log_is_written_to_a_new_file(tmp_path: Path, runtime: Runtime, kind: str) -> None:
    """A link, a hard link to another file or a pipe with the log's name is replaced by the log."""
    runtime.prepare("run-1")
    outside, place = tmp_path / "outside", tmp_path / ".ralph/guardrail_001_x.log"
    outside.write_text("precious")
    makers: dict[str, Callable[[], object]] = {
        "link": lambda: place.symlink_to("../outside"),
        "hard link": lambda: os.link(outside, place),
        "fifo": lambda: os.mkfifo(place),
    }
    makers[kind]()
    log = runtime.open_log("guardrail_001_x.log")
    log.write(b"ours")
    log.close()
    assert (outside.read_text(), place.read_bytes()) == ("precious", b"ours")


def capped(path: Path, most: int) -> Capped:
    return Capped(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), most)


@pytest.mark.parametrize(
    ("pieces", "kept", "lost"),
    [
        ([b"0123456789"], b"0123456789", 0),
        ([b"01234", b"56789"], b"0123456789", 0),
        ([b"01234", b"567890"], b"0123456789\n[ralph] 1 more bytes were dropped\n", 1),
        ([b"x" * 25], b"x" * 10 + b"\n[ralph] 15 more bytes were dropped\n", 15),
        ([b"x" * 10, b"", b"y", b"zz"], b"x" * 10 + b"\n[ralph] 3 more bytes were dropped\n", 3),
        ([], b"", 0),
    ],
)
def test_a_file_stops_growing_at_its_cap(tmp_path: Path, pieces: list[bytes], kept: bytes, lost: int) -> None:
    """Bytes over the cap are counted and reported at the end, not kept."""
    file = capped(tmp_path / "log", 10)
    for piece in pieces:
        file.write(piece)
    assert file.lost == lost
    file.close()
    assert (tmp_path / "log").read_bytes() == kept


def test_a_file_on_a_full_disk_says_so() -> None:
    """The first error is kept, and every lost byte is counted, including those of the failed piece."""
    file = Capped(os.open("/dev/full", os.O_WRONLY), 100)
    file.write(b"one")
    file.write(b"two")
    file.close()
    assert (file.problem, file.lost) == ("No space left on device", 6)


# ---- names of logs ----


@pytest.mark.parametrize(
    ("command", "slug"),
    [
        ("./mvnw clean install -T 2C", "mvnw_clean_install_T_2C"),
        ("make test", "make_test"),
        ("a && b || c; d", "a_b_c_d"),
        ("  spaces  ", "spaces"),
        ("__x__", "x"),
        ("a_-_b", "a_b"),
        ("Ärger", "rger"),
        ("é", "command"),
        ("!!!", "command"),
        ("", "command"),
        ("../../etc/passwd", "etc_passwd"),
        ("x" * 60, "x" * 50),
        ("line\nline\0nul", "line_line_nul"),
    ],
)
def test_the_slug_of_a_command(command: str, slug: str) -> None:
    """Runs of other characters become one `_`, ends are trimmed, and it is cut at 50."""
    assert log_slugs([command]) == {command: slug}


def test_equal_slugs_are_numbered() -> None:
    """Different commands with one slug, and the same command twice, have separate logs."""
    commands = ["make test", "make-test", "make test #2", "lint", "make  test"]
    assert log_slugs(commands) == {
        "make test": "make_test",
        "make-test": "make_test.2",
        "make test #2": "make_test.3",
        "lint": "lint",
        "make  test": "make_test.4",
    }


def test_two_equal_guardrails_have_two_logs(project: Project) -> None:
    """The second log of a command is `guardrail_<iteration>_<slug>.2.log`."""
    project.agent(
        "echo '<response>DONE</response>'", guardrails=[{"command": "echo one"}, {"command": "echo one"}]
    )
    assert project.run("run", "-p", "x").code == 0
    logs = {file.name: file.read_text() for file in (project.path / ".ralph").glob("guardrail_*")}
    assert logs == {"guardrail_001_echo_one.log": "one\n", "guardrail_001_echo_one.2.log": "one\n"}
