"""Programs that run other programs: shells, sudo, env, timeout, `uv run` and similar."""

from __future__ import annotations

from ralph.shell.arguments import skip_options, takes_next, values_of
from ralph.shell.code.languages import SHELLS
from ralph.shell.programs.tools import package_scripts
from ralph.shell.steps import ShellScript, ShellText, inner, read_aside
from ralph.shell.variables import COMMAND_VARIABLES
from ralph.shell.words import DECODED, NET, SECRET, UNKNOWN, Word, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.command import SimpleCommand
    from ralph.shell.state import ShellState
    from ralph.shell.steps import Emulation, Step, Steps

# Programs whose operands are a command, each with its options that take a value and the number of words before it.
_PREFIXES: dict[str, tuple[str, int]] = {
    **dict.fromkeys(
        words_of(
            "nohup setsid command builtin coproc spawn busybox toybox unbuffer firejail dbus-run-session"
            " catchsegv chronic rlwrap torsocks linux64 noglob nocorrect - capsh"
        ),
        ("", 0),
    ),
    **dict.fromkeys(("time", "gtime"), ("-f -o --format --output", 0)),
    "stdbuf": ("-i -o -e --input --output --error", 0),
    "nice": ("-n --adjustment", 0),
    "ionice": ("-c -n -p -P -u --class --classdata", 0),
    "chrt": ("-T -P -D", 1),
    "taskset": ("", 1),
    **dict.fromkeys(("timeout", "gtimeout"), ("-s -k --signal --kill-after", 1)),
    "exec": ("-a", 0),
    "ld.so": ("--library-path --preload --argv0", 0),
    "strace": ("-e -o -p -s -u -E -P", 0),
    "ltrace": ("-e -o -p -s -u -n", 0),
    "caffeinate": ("-t -w", 0),
    "fakeroot": ("-l -s -i", 0),
    "proot": ("-r -b -w", 0),
    "chroot": ("", 1),
    "unshare": ("-S -G -R -w", 0),
    "nsenter": ("-t --target -S -G", 0),
    "xvfb-run": ("-s -n -e -f -w -p --server-args --server-num", 0),
    "cpulimit": ("-l -p -e", 0),
    "ifne": ("-n", 0),
    "gsudo": ("-u", 0),
    "doas": ("-u -C -a", 0),
    "pkexec": ("--user", 0),
    **dict.fromkeys(("proxychains", "proxychains4"), ("-f", 0)),
    "setarch": ("", 1),
    "start-stop-daemon": ("-p -u -g -n", 0),
    "systemd-run": ("-p -u --unit -E --setenv -M", 0),
    "systemd-inhibit": ("--what --who --why --mode", 0),
    "flock": ("-w -E", 1),
    "dotenv": ("-e -f", 0),
    "prlimit": ("-p", 0),
    "sshpass": ("-p -f -d", 0),
}

# `uv run x`, `npx x` …: the subcommands, options that take a value, options whose value is the directory.
_JAVASCRIPT = "-p --package -w --workspace -F --filter"
_RUNNERS: dict[str, tuple[str, str, str]] = {
    "uv": (
        "run",
        "--with --with-requirements --with-editable --python -p --group --no-group --only-group --extra --no-extra"
        " --package --project --env-file --index --index-url --extra-index-url --config-file",
        "--directory",
    ),
    "poetry": ("run", "-P --project", "-C --directory"),
    **dict.fromkeys(("pipenv", "pdm", "hatch", "rye"), ("run", "-e --env -p --project --python", "")),
    "coverage": ("run", "--source --omit --include --rcfile --data-file --context --concurrency", ""),
    "conda": ("run", "-n --name -p --prefix", "--cwd"),
    "op": ("run", "--env-file", ""),
    "pipx": ("run", "--spec --python", ""),
    "uvx": ("", "--from --with --python -p", ""),
    **dict.fromkeys(("bundle", "asdf", "direnv"), ("exec", "", "")),
    "mise": ("exec x", "-C --cd", ""),
    "npm": ("exec x", f"{_JAVASCRIPT} -c --call", "--prefix -C"),
    "npx": ("", f"{_JAVASCRIPT} -c --call", ""),
    "pnpm": ("exec dlx", _JAVASCRIPT, "-C --dir"),
    "yarn": ("exec dlx", _JAVASCRIPT, "--cwd"),
    "bun": ("x", _JAVASCRIPT, "--cwd"),
    **dict.fromkeys(("bunx", "corepack"), ("", _JAVASCRIPT, "")),
}
_OF_PYTHON = ("uv", "poetry", "pipenv", "pdm", "hatch", "rye", "coverage")
"""Runners that also run Python modules and files."""


def _prefix(shell: ShellState, command: SimpleCommand) -> Steps:
    valued, many = _PREFIXES[command.program]
    if command.program == "command" and command.args[:1] and command.args[0] in ("-v", "-V"):
        return f"/usr/bin/{command.args[1]}" if len(command.args) > 1 else UNKNOWN
    words = skip_options(command.args, valued)[many:]
    if command.program == "flock" and words[:1] == ["-c"]:
        return [ShellScript(" ".join(words[1:]))]
    return inner(command, skip_options(words, ""), directory=None if command.program == "chroot" else "")


def _runner(shell: ShellState, command: SimpleCommand) -> Steps:
    program = command.program
    if program == "bun" and _is_bun_script(command.args):
        from ralph.shell.code.interpreters import interpret

        return interpret(shell, command)
    steps = package_scripts(shell, command) if program in ("npm", "pnpm", "yarn", "bun") else []
    verbs, valued, moves = _RUNNERS[program]
    words = skip_options(command.args, f"{valued} {moves}")
    if verbs:
        if not words or words[0] not in verbs.split():
            return [*steps, UNKNOWN]
        words = skip_options(words[1:], f"{valued} {moves}")
    options = command.args[: len(command.args) - len(words)]
    if program in ("npx", "npm") and (texts := [*values_of(options, "-c --call")]):
        return [*steps, *map(ShellScript, texts)]
    if program in _OF_PYTHON and words:
        if "-m" in options or "--module" in options:
            words = [Word("python"), Word("-m"), *words]
        elif words[0].endswith(".py"):
            words = [Word("python"), *words]
    directory = next((shell.path(name) for name in values_of(options, moves)), "")
    if program == "direnv":
        directory, words = shell.path(words[0]) if words else "", words[1:]
    return [*steps, *inner(command, words, directory=directory)]


def _is_bun_script(words: list[Word]) -> bool:
    """Whether bun runs code or a file: `bun -e …`, `bun x.ts`, `bun run x.ts`."""
    names = [word for word in words if not word.startswith("-") and word != "run"]
    is_code = words[:1] in (["-e"], ["--eval"], ["-p"], ["--print"])
    return is_code or any("." in name or "/" in name for name in names[:1])


# ---- shells ----


def _shell(shell: ShellState, command: SimpleCommand) -> Steps:
    words = list(command.args)
    letters = ""
    while words and words[0][:1] in ("-", "+") and len(words[0]) > 1:
        option = words.pop(0)
        if option == "--":
            break
        if takes_next(option, ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")):
            del words[:1]
        if not option.startswith("--"):
            letters += option[1:]
    if "n" in letters and "c" not in letters.partition("n")[0]:
        return started(command, "", [])  # only a syntax check
    if "c" in letters:
        return started(command, words[0] if words else "", words[1:])
    if words and words[0] not in ("-", "/dev/stdin") and "s" not in letters:
        command.script = words[0]
        text = shell.content(words[0])
        return started(command, "" if text == UNKNOWN else text, words)
    command.script = command.read_from
    return started(command, command.stdin, [Word(command.name), *words] if "s" in letters else [])


def started(command: SimpleCommand, text: str, arguments: list[Word]) -> Steps:
    """Return the step for a shell that runs this code."""
    command.code = text
    if not text.strip() or NET in text or DECODED in text or text.strip() == UNKNOWN:
        return UNKNOWN
    return [ShellScript(text, arguments)]


def _env(shell: ShellState, command: SimpleCommand) -> Steps:
    words = list(command.args)
    directory: str | None = ""
    steps: list[Step] = []
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-C", "--chdir"):
            directory = shell.path(value if equals else words.pop(0)) if equals or words else None
        elif word in ("-u", "--unset"):
            del words[:1]
        elif word.startswith("-S") or name == "--split-string":
            text = value if name == "--split-string" and equals else word[2:] if word[:2] == "-S" else ""
            text = text or " ".join(words[:1])
            return [*steps, ShellScript(text)]
        elif word.startswith("-"):
            continue
        elif equals and name.replace("_", "a").isalnum():
            command.assigns = {**command.assigns, name: value}
            steps += read_aside(value) if name in COMMAND_VARIABLES else []
        else:
            return [*steps, *inner(command, [word, *words], directory=directory)]
    return [*steps, SECRET]


def _sudo(shell: ShellState, command: SimpleCommand) -> Steps:
    words = skip_options(
        command.args, "-u -g -h -p -C -D -R -T -U -r -t --user --group --chdir --prompt --host"
    )
    options = command.args[: len(command.args) - len(words)]
    while words and "=" in words[0] and not words[0].startswith(("/", "-")):
        words = words[1:]
    directory = next((shell.path(name) for name in values_of(options, "-D --chdir")), "")
    if words and {"-s", "--shell", "-i", "--login"} & set(options):
        words = [Word("sh"), Word("-c"), Word(" ".join(words))]
    return inner(command, words, directory=directory)


def _su(shell: ShellState, command: SimpleCommand) -> Steps:
    for text in values_of(command.args, "-c --command"):
        return inner(command, [Word("sh"), Word("-c"), text], "sudo")
    rest = command.args[command.args.index(Word("--")) + 1 :] if "--" in command.args else []
    return inner(command, rest, "sudo")


# ---- operands that are command lines ----


def _words_as_text(valued: str) -> Emulation:
    """Emulate programs whose operands together are a command line: watch, watchexec."""

    def emulate(shell: ShellState, command: SimpleCommand) -> Steps:
        return [*read_aside(" ".join(skip_options(command.args, valued))), UNKNOWN]

    return emulate


def _ssh(shell: ShellState, command: SimpleCommand) -> Steps:
    """Run the operands after the host as a command line on another machine."""
    words = skip_options(command.args, "-p -i -l -o -F -J -L -R -D -W -w -b -c -e -E -I -m -O -Q -S")[1:]
    text = " ".join(words)
    return [ShellText(text, None), NET] if text.strip() else UNKNOWN


def _each_as_text(valued: str) -> Emulation:
    """Emulate programs whose operands with a space are command lines: concurrently, hyperfine, tmux new -d '…'."""

    def emulate(shell: ShellState, command: SimpleCommand) -> Steps:
        words = skip_options(command.args, valued)
        texts = read_aside(*(word for word in words if " " in word))
        return [*texts, *(inner(command, words) if command.program == "screen" else [UNKNOWN])]

    return emulate


TABLE: dict[str, Emulation] = {
    **dict.fromkeys(SHELLS, _shell),
    **dict.fromkeys(_PREFIXES, _prefix),
    **dict.fromkeys(_RUNNERS, _runner),
    "env": _env,
    "sudo": _sudo,
    **dict.fromkeys(("su", "runuser", "sg"), _su),
    "ssh": _ssh,
    "watch": _words_as_text("-n --interval"),
    "watchexec": _words_as_text("-w -e -i --watch --exts --ignore"),
    "concurrently": _each_as_text("-n --names -c"),
    "hyperfine": _each_as_text("-w -r --warmup --runs --export-json"),
    **dict.fromkeys(("tmux", "screen"), _each_as_text("-s -n -t -c -S -L -x -y -e")),
}
