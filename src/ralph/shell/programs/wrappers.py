"""Programs that run other programs: shells, sudo, xargs, find, interpreters."""

from __future__ import annotations

from ralph.shell.arguments import SHELLS, inner, skip_options, values_of
from ralph.shell.code.languages import language
from ralph.shell.programs import finders, tools
from ralph.shell.state import Streams
from ralph.shell.words import DECODED, NET, UNKNOWN, Word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralph.shell.arguments import Wrapper
    from ralph.shell.command import SimpleCommand
    from ralph.shell.reader import ShellReader

# Programs whose operands are a command, each with its options that take a value and how many words come first.
_PREFIXES: dict[str, tuple[str, int]] = {
    "nohup": ("", 0),
    "setsid": ("", 0),
    "time": ("-f -o --format --output", 0),
    "gtime": ("-f -o", 0),
    "stdbuf": ("-i -o -e", 0),
    "nice": ("-n --adjustment", 0),
    "ionice": ("-c -n -p -P -u", 0),
    "chrt": ("-T -P -D", 1),
    "taskset": ("", 1),
    "timeout": ("-s -k --signal --kill-after", 1),
    "gtimeout": ("-s -k", 1),
    "command": ("", 0),
    "builtin": ("", 0),
    "exec": ("-a", 0),
    "coproc": ("", 0),
    "spawn": ("", 0),
    "busybox": ("", 0),
    "toybox": ("", 0),
    "unbuffer": ("", 0),
    "ld.so": ("--library-path --preload --argv0", 0),
    "strace": ("-e -o -p -s -u -E -P", 0),
    "ltrace": ("-e -o -p -s -u -n", 0),
    "caffeinate": ("-t -w", 0),
    "fakeroot": ("-l -s -i", 0),
    "proot": ("-r -b -w", 0),
    "chroot": ("", 1),
    "unshare": ("-S -G -R -w", 0),
    "nsenter": ("-t --target -S -G", 0),
    "firejail": ("", 0),
    "xvfb-run": ("-s -n -e -f -w -p", 0),
    "dbus-run-session": ("", 0),
    "cpulimit": ("-l -p -e", 0),
    "catchsegv": ("", 0),
    "chronic": ("", 0),
    "ifne": ("-n", 0),
    "gsudo": ("-u", 0),
    "doas": ("-u -C -a", 0),
    "pkexec": ("--user", 0),
    "rlwrap": ("", 0),
    "torsocks": ("", 0),
    "proxychains": ("-f", 0),
    "proxychains4": ("-f", 0),
    "setarch": ("", 1),
    "linux64": ("", 0),
    "start-stop-daemon": ("-p -u -g -n", 0),
    "systemd-run": ("-p -u --unit -E --setenv -M", 0),
    "systemd-inhibit": ("--what --who --why --mode", 0),
    "flock": ("-w -E", 1),
    "dotenv": ("-e -f", 0),
    "noglob": ("", 0),
    "nocorrect": ("", 0),
    "-": ("", 0),
    "prlimit": ("-p", 0),
    "capsh": ("", 0),
    "sshpass": ("-p -f -d", 0),
}

# `uv run x`, `poetry run x` …: the words before the command.
_RUNNERS: dict[str, tuple[str, ...]] = {
    "uv": ("run",),
    "poetry": ("run",),
    "pipenv": ("run",),
    "pdm": ("run",),
    "hatch": ("run",),
    "rye": ("run",),
    "bundle": ("exec",),
    "npm": ("exec", "x"),
    "pnpm": ("exec", "dlx"),
    "yarn": ("exec", "dlx"),
    "bun": ("x",),
    "direnv": ("exec",),
    "op": ("run",),
    "mise": ("exec", "x"),
    "asdf": ("exec",),
    "conda": ("run",),
    "npx": (),
    "corepack": (),
    "bunx": (),
    "uvx": (),
    "pipx": ("run",),
}


def find(program: str) -> Wrapper | None:
    if program in SHELLS:
        return _shell
    if program in _PREFIXES:
        return _prefix
    if program in _RUNNERS:
        return _runner
    return _TABLE.get(program) or _interpreter(program)


def _prefix(reader: ShellReader, command: SimpleCommand) -> str:
    reader.record(command)
    valued, many = _PREFIXES[command.program]
    if command.program == "command" and command.args[:1] and command.args[0] in ("-v", "-V"):
        return f"/usr/bin/{command.args[1]}" if len(command.args) > 1 else UNKNOWN
    words = skip_options(command.args, valued)[many:]
    if command.program == "coproc" and len(words) > 1 and words[0].isupper():
        words = words[1:]
    if command.program == "flock" and words[:1] == ["-c"]:
        return reader.read_apart(" ".join(words[1:]))
    if command.program == "chroot":
        command.directory = None
    return inner(reader, command, skip_options(words, ""))


def _runner(reader: ShellReader, command: SimpleCommand) -> str:
    if (
        language(command.program)
        and command.args[:1]
        and command.args[0] in ("-e", "--eval", "-p", "--print")
    ):
        from ralph.shell.code import strings

        return strings.run(reader, command)
    reader.record(command)
    if command.program in ("npm", "pnpm", "yarn", "bun"):
        tools.package_scripts(reader, command)
    words = skip_options(
        command.args, "--with --from --python -p --package -e --env-file --directory --project -n -w"
    )
    verbs = _RUNNERS[command.program]
    if verbs:
        if not words or words[0] not in verbs:
            return UNKNOWN
        words = skip_options(words[1:], "--with --python -p --package --env-file --extra --group -n")
    if command.program in ("npx", "npm") and ("-c" in command.args or "--call" in command.args):
        flag = "-c" if "-c" in command.args else "--call"
        return reader.read_apart(" ".join(command.args[command.args.index(Word(flag)) + 1 :][:1]))
    return inner(reader, command, words[1:] if command.program == "direnv" else words)


# ---- shells ----


def _shell(reader: ShellReader, command: SimpleCommand) -> str:
    words = list(command.args)
    while words and words[0].startswith(("-", "+")) and words[0] not in ("-", "--"):
        option = words.pop(0)
        if not option.startswith("--") and "n" in option and "c" not in option.partition("n")[0]:
            return shell_text(reader, command, "", [])  # only checks the syntax
        if option == "-s":
            return shell_text(reader, command, command.stdin, words)
        if option in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"):
            words = words[1:]
        elif not option.startswith("--") and "c" in option:
            words = words[1:] if words[:1] == ["--"] else words
            return shell_text(reader, command, words[0] if words else "", words[1:])
    if words and words[0] not in ("-", "/dev/stdin", "-s"):
        from ralph.shell.programs.outputs import content

        text = content(reader, words[0])
        return shell_text(reader, command, "" if text == UNKNOWN else text, words)
    return shell_text(reader, command, command.stdin, [])


def shell_text(reader: ShellReader, command: SimpleCommand, text: str, arguments: list[Word]) -> str:
    command.code = text
    reader.record(command)
    if not text.strip() or NET in text or DECODED in text or text.strip() == UNKNOWN:
        return UNKNOWN
    state, reader.state = reader.state, reader.state.copy()
    reader.state.positional = arguments[1:]
    try:
        reader.state.variables.update(command.assigns)
        if arguments:
            reader.state.variables["0"] = arguments[0]
        stdin = "" if text == command.stdin else command.stdin
        streams = Streams().but(upstream=command.upstream, piped=command.piped, stdin=stdin)
        return reader.read(text, streams)
    finally:
        reader.state = state


def _env(reader: ShellReader, command: SimpleCommand) -> str:
    reader.record(command)
    words = list(command.args)
    while words:
        word = words[0]
        if word in ("-u", "--unset", "-C", "--chdir"):
            if word in ("-C", "--chdir"):
                _move(reader, command, words[1:2])
            words = words[2:]
        elif word.startswith("--chdir="):
            _move(reader, command, [word.partition("=")[2]])
            words = words[1:]
        elif word in ("-S", "--split-string") or word.startswith(("-S", "--split-string=")):
            text = words[1] if word in ("-S", "--split-string") and len(words) > 1 else word.split("=", 1)[-1]
            return reader.read_apart(text.removeprefix("-S"))
        elif word == "--" or word.startswith("-"):
            words = words[1:]
        elif "=" in word and word.partition("=")[0].replace("_", "a").isalnum():
            name, _, value = word.partition("=")
            command.assigns = {**command.assigns, name: value}
            reader.run_later(name, value)
            words = words[1:]
        else:
            return inner(reader, command, words)
    from ralph.shell.words import SECRET

    return SECRET


def _move(reader: ShellReader, command: SimpleCommand, names: Sequence[str]) -> None:
    """What it runs, it runs in another directory."""
    command.directory = reader.path(names[0]) if names else None


def _sudo(reader: ShellReader, command: SimpleCommand) -> str:
    reader.record(command)
    for name in values_of(command.args, "-D --chdir"):
        _move(reader, command, [name])
    words = skip_options(
        command.args, "-u -g -h -p -C -D -R -T -U -r -t --user --group --chdir --prompt --host"
    )
    while words and "=" in words[0] and not words[0].startswith(("/", "-")):
        words = words[1:]
    if not words:
        return UNKNOWN
    if {"-s", "--shell"} & set(command.args) or {"-i", "--login"} & set(command.args):
        return reader.run(command.derived("sh", [Word("-c"), Word(" ".join(words))], "sudo"))
    return inner(reader, command, words)


def _su(reader: ShellReader, command: SimpleCommand) -> str:
    reader.record(command)
    for number, word in enumerate(command.args):
        if word in ("-c", "--command") and number + 1 < len(command.args):
            return reader.run(command.derived("sh", [Word("-c"), command.args[number + 1]], "sudo"))
    if "--" in command.args:
        return inner(reader, command, command.args[command.args.index(Word("--")) + 1 :], "sudo")
    return UNKNOWN


def _words_as_text(valued: str, skip: int = 0) -> Wrapper:
    """The operands together are a command line: watch, ssh, hyperfine."""

    def run(reader: ShellReader, command: SimpleCommand) -> str:
        reader.record(command)
        words = skip_options(command.args, valued)[skip:]
        text = " ".join(words)
        if not text.strip():
            return UNKNOWN
        if command.program in ("ssh", "mosh"):
            return _far_away(reader, command, text)
        reader.read_apart(text)
        return UNKNOWN

    return run


def _far_away(reader: ShellReader, command: SimpleCommand, text: str) -> str:
    state, reader.state = reader.state, reader.state.copy()
    try:
        reader.state.directory = None
        reader.read(text)
    finally:
        reader.state = state
    return NET


def _each_as_text(valued: str) -> Wrapper:
    """Every operand is a command line of its own: concurrently, hyperfine."""

    def run(reader: ShellReader, command: SimpleCommand) -> str:
        reader.record(command)
        for word in skip_options(command.args, valued):
            if " " in word:
                reader.read_apart(word)
        return UNKNOWN

    return run


def _interpreter(program: str) -> Wrapper | None:
    if not language(program):
        return None
    from ralph.shell.code import strings

    return strings.run


def _last_as_text(reader: ShellReader, command: SimpleCommand) -> str:
    """tmux new -d 'command', screen -dm command."""
    reader.record(command)
    words = skip_options(command.args, "-s -n -t -c -S -L -x -y -e")
    for word in words:
        if " " in word:
            reader.read_apart(word)
    if command.program == "screen" and words:
        return inner(reader, command, words)
    return UNKNOWN


_TABLE: dict[str, Wrapper] = {
    **finders.TABLE,
    **tools.TABLE,
    "env": _env,
    "sudo": _sudo,
    **dict.fromkeys(("su", "runuser", "sg"), _su),
    "watch": _words_as_text("-n --interval"),
    "ssh": _words_as_text("-p -i -l -o -F -J -L -R -D -W -w -b -c -e -E -I -m -O -Q -S", 1),
    "concurrently": _each_as_text("-n --names -c"),
    "hyperfine": _each_as_text("-w -r --warmup --runs --export-json"),
    "watchexec": _words_as_text("-w -e -i --watch --exts --ignore"),
    "tmux": _last_as_text,
    "screen": _last_as_text,
}
