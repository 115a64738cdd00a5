"""argv -> command -> exit code, and the one place where errors become words for people."""

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
        "work": "Take tasks through their roles until each is proved and merged.",
        "prd": "Work through a PRD: stories implemented, reviewed and approved.",
        "supervise": "Keep a command going until it leaves a DONE file.",
        "resume": "Go on with a run that was stopped, killed or paused.",
        "demo": "See a whole run in ten seconds, without any agent.",
    },
    "Say what done means": {
        "task": "Create, import, list and change tasks with completion specs.",
    },
    "See what happens": {
        "tui": "See every run on the machine in one screen, look into it, steer it.",
        "status": "Show all runs, or one of them in detail.",
        "logs": "Show what happened in a run, or what is happening.",
        "diff": "Show what an iteration has changed.",
        "report": "Tell what a run or a task came to, as a page to keep.",
    },
    "Undo and tidy up": {
        "rewind": "Put the tree back as it was before an iteration.",
        "prune": "Remove old runs, their streams and their snapshots.",
    },
    "Steer a run": {
        "steer": "Give a run guidance for its next prompt.",
        "pause": "Let a run finish its step, then hold it.",
        "cancel": "End a run and everything it has started.",
        "bus": "Post to the message bus of a task, read it, follow it.",
    },
    "Set up": {
        "guard": "Ask whether the guard would let a command run, and why not.",
        "init": "Write the settings of a project, by a few questions.",
        "doctor": "Find out whether a run can work here, and what to do if not.",
        "notify": "Show who is notified of what, and try it.",
        "config": "Show the settings and where each value comes from.",
        "plugin": "Install the plugin for Claude Code: skills, hooks, templates.",
        "completion": "Print the shell completion for bash, zsh or fish.",
    },
    "Develop and test": {
        "dev": "Tools for tests: a model server that plays a script.",
    },
}

EXAMPLE = 'ralph run -p "Make the tests pass" -m 5'


def main(arguments: list[str] | None = None) -> int:
    if arguments is not None:
        return _main(arguments)
    import gc

    gc.set_threshold(50_000)  # what a start makes stays: to look for garbage in it is a waste
    try:
        return _main(sys.argv[1:])
    finally:
        gc.freeze()  # nor does the end look through it


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
    """A standard stream that the caller has closed is /dev/null: nothing else may get its number."""
    for number, mode in enumerate("rww"):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            stream = open(number, mode, closefd=False)
            setattr(sys, ("stdin", "stdout", "stderr")[number], stream)


def _hear_interrupts() -> None:
    """While a module is loaded, a KeyboardInterrupt could get lost in it: the plain signal cannot."""
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
        return 0  # the reader has gone, as in `ralph logs | head`
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "ralph"
        _complain(error.format_message(), f"`{command} --help` explains it.")
        return 2
    return result if isinstance(result, int) else 0


def with_default_command(argv: list[str]) -> list[str]:
    """`ralph -p …` means `ralph run -p …`; without any arguments there is only help to give."""
    if not argv:
        return ["--help"]
    if argv[0].startswith("-") and argv[0] not in ("-h", "--help"):
        return ["run", *argv]
    return argv


OLD_OPTIONS = {"sandbox-rung": "sandbox-backend"}
"""Names that options had in earlier versions, which still work."""


def make_group() -> click.Group:
    import click

    from ralph.commands.table import Table

    return Table(
        GROUPS,
        _load,
        name="ralph",
        help="Runs a coding agent again and again, each time with a fresh context, until the work is proved"
        f" done.\n\n\b\n{EXAMPLE}",
        epilog="`ralph COMMAND --help` explains a command. `ralph -p …` is short for `ralph run -p …`.",
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
    """A bug of ours: the details go to a file that can be pasted into a report."""
    import tempfile
    import traceback

    details = "".join(traceback.format_exception(error))
    if "-V" in argv or "--verbose" in argv:
        print(details, file=sys.stderr)
    try:
        with tempfile.NamedTemporaryFile("w", prefix="ralph-error-", suffix=".log", delete=False) as file:
            file.write(f"ralph {__version__}, Python {sys.version}, {sys.platform}\n{argv}\n\n{details}")
        where = f"The details are in {file.name}"
    except OSError:
        where = "Run it again with --verbose to see the details"
    _complain(
        f"unexpected {type(error).__name__}: {error}",
        f"This is a bug. {where}; nothing that was journalled is lost.",
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
