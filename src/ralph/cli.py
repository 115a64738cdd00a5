"""Run the command named in argv and return its exit code. All error messages are printed here."""

from __future__ import annotations

import os
import sys

from ralph import __version__

TYPE_CHECKING = False  # `typing` alone would cost a fifth of `ralph --version`
if TYPE_CHECKING:
    import types

    import click

GROUPS: dict[str, dict[str, str]] = {
    "Run an agent": {
        "run": "Run an agent until the work is proved done.",
        "work": "Take tasks through their roles until each is verified and merged.",
        "prd": "Work through the stories of a PRD: implement, review, approve.",
        "supervise": "Restart a command until it creates a DONE file.",
        "resume": "Resume a run that was stopped, killed or paused.",
        "demo": "Watch a complete run in ten seconds, no agent needed.",
    },
    "Define tasks": {
        "task": "Create, import, list and edit tasks with completion specs.",
    },
    "Watch and inspect": {
        "tui": "Watch and steer every run on this machine on one screen.",
        "status": "Show all runs, or one run in detail.",
        "logs": "Show the log of a run, finished or live.",
        "diff": "Show what an iteration changed.",
        "report": "Write a report about a run or a task.",
    },
    "Undo and clean up": {
        "rewind": "Restore the files as they were before an iteration.",
        "prune": "Remove old runs with their streams and snapshots.",
    },
    "Steer a run": {
        "steer": "Add guidance to the next prompt of a run.",
        "pause": "Pause a run after its current step.",
        "cancel": "Stop a run and everything it started.",
        "bus": "Post, read and follow messages on a task's bus.",
    },
    "Set up": {
        "guard": "Check whether the guard would allow a command.",
        "init": "Create the settings of a project from a few questions.",
        "doctor": "Check that Ralph can run here, and show how to fix problems.",
        "notify": "Show and test notifications.",
        "config": "Show the settings and where each value comes from.",
        "plugin": "Install the Claude Code plugin: skills, hooks, templates.",
        "completion": "Print the completion script for bash, zsh or fish.",
    },
    "Develop and test": {
        "dev": "Tools for testing: a model server that plays a script.",
    },
}

EXAMPLE = 'ralph run -p "Make the tests pass" -m 5'


def main(arguments: list[str] | None = None) -> int:
    if arguments is not None:
        return _main(arguments)
    import gc

    gc.set_threshold(50_000)  # objects made at startup stay alive, so collecting them is wasted time
    try:
        return _main(sys.argv[1:])
    finally:
        gc.freeze()  # skip them at exit too


def _main(argv: list[str]) -> int:
    _open_streams()
    if argv[:1] in (["--version"], ["-v"]):
        print(f"ralph {__version__}")
        return 0
    if argv[:1] == ["guard"] and "--hook" in argv:
        from ralph.guard.hook import run

        run([word for word in argv[1:] if word != "--hook"])
    _hear_interrupts()
    from ralph.errors import RalphError

    try:
        _check_text(argv)
        return _invoke(argv)
    except RalphError as error:
        _complain(error.message, error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
        return 2
    except Exception as error:
        return _unexpected(error, argv)


def _open_streams() -> None:
    """Open /dev/null for each standard stream that the caller closed, so that no other file gets its number."""
    for number, mode in enumerate("rww"):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            stream = open(number, mode, closefd=False)
            setattr(sys, ("stdin", "stdout", "stderr")[number], stream)


def _hear_interrupts() -> None:
    """Let Ctrl-C kill the process while a module is being imported, where a KeyboardInterrupt could get lost."""
    import signal

    def interrupted(number: int, frame: types.FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            frame = frame.f_back
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)


def _check_text(argv: list[str]) -> None:
    from ralph.errors import RalphError

    for argument in argv:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise RalphError(f"The argument {os.fsencode(argument)!r} is not UTF-8 text.") from None


def _invoke(argv: list[str]) -> int:
    import click

    group = make_group()
    try:
        result = group.main(with_default_command(argv), prog_name="ralph", standalone_mode=False)
    except click.exceptions.Exit as exit:
        return exit.exit_code
    except click.Abort:
        return 130
    except SystemExit:
        return 0  # the reader has closed the pipe, as in `ralph logs | head`
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "ralph"
        _complain(error.format_message(), f"For help, run: {command} --help")
        return 2
    return result if isinstance(result, int) else 0


def with_default_command(argv: list[str]) -> list[str]:
    """Add `run` if argv starts with an option (`ralph -p …`), and `--help` if it is empty."""
    if not argv:
        return ["--help"]
    if argv[0].startswith("-") and argv[0] not in ("-h", "--help"):
        return ["run", *argv]
    return argv


OLD_OPTIONS = {"sandbox-rung": "sandbox-backend"}
"""Option names of earlier versions, which still work."""


def make_group() -> click.Group:
    import click

    from ralph.commands.table import Table

    return Table(
        GROUPS,
        _load,
        name="ralph",
        help="Run a coding agent in a loop, with a fresh context in each iteration, until the work is proved"
        f" done.\n\n\b\n{EXAMPLE}",
        epilog="Run `ralph COMMAND --help` for help on a command. `ralph -p …` is short for `ralph run -p …`.",
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": 100,
            "token_normalize_func": lambda name: OLD_OPTIONS.get(name, name),
        },
        params=[
            click.Option(["-v", "--version"], is_flag=True, expose_value=False, help="Print the version.")
        ],
    )


def _load(name: str) -> click.Command:
    import importlib

    command: click.Command = importlib.import_module(f"ralph.commands.{name}").command
    return command


def _complain(message: str, hint: str = "") -> None:
    print(f"ralph: error: {message}", file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)


def _unexpected(error: Exception, argv: list[str]) -> int:
    """Report a bug in Ralph; the details go to a file to paste into a bug report."""
    import tempfile
    import traceback

    details = "".join(traceback.format_exception(error))
    if "-V" in argv or "--verbose" in argv:
        print(details, file=sys.stderr)
    try:
        with tempfile.NamedTemporaryFile("w", prefix="ralph-error-", suffix=".log", delete=False) as file:
            file.write(f"ralph {__version__}, Python {sys.version}, {sys.platform}\n{argv}\n\n{details}")
        where = f"Details: {file.name}"
    except OSError:
        where = "Run the command again with --verbose to see the details"
    _complain(
        f"unexpected {type(error).__name__}: {error}",
        f"This is a bug in Ralph. No journalled work is lost. {where}",
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
