"""Programs that run other programs: shells, sudo, xargs, find, interpreters."""

from __future__ import annotations

from ralph.guard.languages import language
from ralph.guard.words import DECODED, NET, UNKNOWN, Word, globbing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ralph.guard.model import Command
    from ralph.guard.reader import Reader

    Wrapper = Callable[[Reader, Command], str]

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
    "entr": ("", 0),
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
    "nix-shell": (),
    "npx": (),
    "bunx": (),
    "uvx": (),
    "pipx": ("run",),
}

SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "fish", "csh", "tcsh", "yash", "elvish"}


def find(program: str) -> Wrapper | None:
    if program in SHELLS:
        return _shell
    if program in _PREFIXES:
        return _prefix
    if program in _RUNNERS:
        return _runner
    return _TABLE.get(program) or _interpreter(program)


def inner(reader: Reader, command: Command, words: list[Word], wrapper: str = "") -> str:
    """Run what a wrapper runs."""
    if not words:
        return UNKNOWN
    return reader.run(command.derived(words[0], words[1:], wrapper or command.program))


def skip_options(words: list[Word], valued: str) -> list[Word]:
    """The operands behind the options."""
    takes = valued.split()
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return words[at + 1 :]
        if not word.startswith("-") or word == "-":
            break
        at += 2 if word in takes else 1
    return words[at:]


def _prefix(reader: Reader, command: Command) -> str:
    reader.record(command)
    valued, many = _PREFIXES[command.program]
    if command.program == "command" and command.args[:1] and command.args[0] in ("-v", "-V"):
        return f"/usr/bin/{command.args[1]}" if len(command.args) > 1 else UNKNOWN
    words = skip_options(command.args, valued)[many:]
    if command.program == "coproc" and len(words) > 1 and words[0].isupper():
        words = words[1:]
    if command.program in ("flock", "watch") and words[:1] == ["-c"]:
        return reader.read_apart(" ".join(words[1:]))
    if command.program == "chroot":
        command.directory = None
    return inner(reader, command, skip_options(words, ""))


def _runner(reader: Reader, command: Command) -> str:
    if (
        language(command.program)
        and command.args[:1]
        and command.args[0] in ("-e", "--eval", "-p", "--print")
    ):
        from ralph.guard import code

        return code.run(reader, command)
    reader.record(command)
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
    return inner(reader, command, words)


# ---- shells ----


def _shell(reader: Reader, command: Command) -> str:
    words = list(command.args)
    while words and words[0].startswith(("-", "+")) and words[0] not in ("-", "--"):
        option = words.pop(0)
        if option == "-s":
            return _shell_text(reader, command, command.stdin, words)
        if option in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file"):
            words = words[1:]
        elif not option.startswith("--") and "c" in option:
            words = words[1:] if words[:1] == ["--"] else words
            return _shell_text(reader, command, words[0] if words else "", words[1:])
    if words and words[0] not in ("-", "/dev/stdin", "-s"):
        from ralph.guard.outputs import content

        text = content(reader, words[0])
        return _shell_text(reader, command, "" if text == UNKNOWN else text, words)
    return _shell_text(reader, command, command.stdin, [])


def _shell_text(reader: Reader, command: Command, text: str, arguments: list[Word]) -> str:
    command.code = text
    reader.record(command)
    if not text.strip() or NET in text or DECODED in text or text.strip() == UNKNOWN:
        return UNKNOWN
    from ralph.guard.reader import Flow

    state, reader.state = reader.state, reader.state.copy()
    reader.state.positional = arguments[1:]
    try:
        reader.state.variables.update(command.assigns)
        if arguments:
            reader.state.variables["0"] = arguments[0]
        flow = Flow().but(upstream=command.upstream, piped=command.piped, stdin=command.stdin)
        return reader.read(text, flow)
    finally:
        reader.state = state


def _env(reader: Reader, command: Command) -> str:
    reader.record(command)
    words = list(command.args)
    while words:
        word = words[0]
        if word in ("-u", "--unset", "-C", "--chdir"):
            words = words[2:]
        elif word in ("-S", "--split-string") or word.startswith(("-S", "--split-string=")):
            text = words[1] if word in ("-S", "--split-string") and len(words) > 1 else word.split("=", 1)[-1]
            return reader.read_apart(text.removeprefix("-S"))
        elif word == "--" or word.startswith("-"):
            words = words[1:]
        elif "=" in word and word.partition("=")[0].replace("_", "a").isalnum():
            name, _, value = word.partition("=")
            command.assigns = {**command.assigns, name: value}
            words = words[1:]
        else:
            return inner(reader, command, words)
    from ralph.guard.words import SECRET

    return SECRET


def _sudo(reader: Reader, command: Command) -> str:
    reader.record(command)
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


def _su(reader: Reader, command: Command) -> str:
    reader.record(command)
    for number, word in enumerate(command.args):
        if word in ("-c", "--command") and number + 1 < len(command.args):
            return reader.run(command.derived("sh", [Word("-c"), command.args[number + 1]], "sudo"))
    return UNKNOWN


def _words_as_text(valued: str, skip: int = 0) -> Wrapper:
    """The operands together are a command line: watch, ssh, hyperfine."""

    def run(reader: Reader, command: Command) -> str:
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


def _far_away(reader: Reader, command: Command, text: str) -> str:
    state, reader.state = reader.state, reader.state.copy()
    try:
        reader.state.directory = None
        reader.read(text)
    finally:
        reader.state = state
    return NET


def _each_as_text(valued: str) -> Wrapper:
    """Every operand is a command line of its own: concurrently, hyperfine."""

    def run(reader: Reader, command: Command) -> str:
        reader.record(command)
        for word in skip_options(command.args, valued):
            if " " in word:
                reader.read_apart(word)
        return UNKNOWN

    return run


def _option_as_text(options: str) -> Wrapper:
    """The value of an option is a command line: script -c, tar --to-command, vim -c '!…'."""

    def run(reader: Reader, command: Command) -> str:
        reader.record(command)
        names = options.split()
        for number, word in enumerate(command.args):
            name, equals, value = word.partition("=")
            if name in names:
                text: str = (
                    value if equals else command.args[number + 1] if number + 1 < len(command.args) else ""
                )
                text = text.removeprefix("exec=")
                if command.program in ("vi", "vim", "nvim", "ex", "view"):
                    text = text.lstrip(":").partition("!")[2]
                if text.strip() and not text.startswith(("sleep=", "echo", "dot")):
                    reader.read_apart(text)
        from ralph.guard import outputs

        return outputs.of(reader, command)

    return run


def _xargs(reader: Reader, command: Command) -> str:
    reader.record(command)
    valued = "-I -i -n -P -L -d -s -E -a --max-args --max-procs --delimiter --replace --max-lines --arg-file"
    words = skip_options(command.args, valued)
    mark = ""
    for number, word in enumerate(command.args):
        if word in ("-I", "--replace") and number + 1 < len(command.args):
            mark = command.args[number + 1]
        elif word.startswith("-I") and len(word) > 2:
            mark = word[2:]
        elif word in ("-i", "--replace"):
            mark = "{}"
    given = [globbing(each) if "*" in each else Word(each) for each in command.stdin.split()[:200]] or [
        Word(UNKNOWN)
    ]
    if any(word in ("-0", "--null", "-d") or word.startswith(("-0", "-d")) for word in command.args):
        given = [
            globbing(each) if "*" in each else Word(each) for each in command.stdin.split("\n") if each
        ] or given
    if not words:
        return command.stdin
    if mark:
        out = ""
        lines = command.stdin.strip("\n").split("\n")[:50] if command.stdin.strip() else [UNKNOWN]
        for line in lines:
            out += inner(reader, command, [_replaced(word, mark, line) for word in words])
        return out
    return inner(reader, command, [*words, *given])


def _replaced(word: Word, mark: str, value: str) -> Word:
    if mark not in word:
        return word
    new = word.replace(mark, value)
    return globbing(new) if "*" in value and word == mark else Word(new)


def _parallel(reader: Reader, command: Command) -> str:
    reader.record(command)
    words = skip_options(
        command.args, "-j --jobs -a --arg-file -C --colsep -S --sshlogin -N -n -I --delay --timeout"
    )
    at = next((number for number, word in enumerate(words) if word in (":::", "::::", ":::+")), len(words))
    given = (
        [word for word in words[at + 1 :] if not word.startswith(":::")] or command.stdin.split() or [UNKNOWN]
    )
    text = " ".join(words[:at])
    for value in given[:20]:
        if not text:
            reader.read_apart(value)
        else:
            reader.read_apart(text.replace("{}", value) if "{}" in text else f"{text} {value}")
    return UNKNOWN


# ---- find ----

_FILTERS = {
    *(
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-regex",
        "-iregex",
        "-empty",
        "-newer",
        "-mtime",
        "-mmin",
    ),
    *(
        "-size",
        "-user",
        "-group",
        "-perm",
        "-atime",
        "-ctime",
        "-amin",
        "-cmin",
        "-newermt",
        "-links",
        "-inum",
        "-lname",
    ),
    *("-samefile", "-nouser", "-nogroup", "-executable"),
}
_EVERYTHING = {"*", "?*", "*.*", ".*", "**"}


def _find(reader: Reader, command: Command) -> str:
    reader.record(command)
    words = list(command.args)
    while words and words[0] in ("-H", "-L", "-P", "-E", "-X", "-x", "-s"):
        words = words[1:]
    starts: list[Word] = []
    while words and not words[0].startswith(("-", "(", "!")):
        starts.append(words.pop(0))
    starts = starts or [Word(".")]
    found = starts
    for number, word in enumerate(words):
        tests = _tests(words[:number])
        found = [_under(start, tests) if _is_filtered(tests) else start for start in starts]
        if word == "-delete":
            inner(reader, command, [Word("rm"), Word("-rf"), *found], "find")
        elif word in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next(
                (n for n in range(number + 1, len(words)) if words[n] in (";", "+", "\\;")), len(words)
            )
            for each in found:
                inner(reader, command, [_replaced(w, "{}", each) for w in words[number + 1 : end]], "find")
    tests = _tests(words)
    return "\n".join(_under(start, tests) if _is_filtered(tests) else start for start in starts)


def _tests(words: list[Word]) -> list[Word]:
    """Those that must hold for an action behind them: back to the last `-o` that is not in parentheses."""
    depth = 0
    for number in range(len(words) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(words[number], 0)
        if not depth and words[number] in ("-o", "-or", ","):
            return words[number + 1 :]
    return words


def _is_filtered(words: list[Word]) -> bool:
    for number, word in enumerate(words):
        if word in _FILTERS:
            value = words[number + 1] if number + 1 < len(words) else ""
            is_negated = number > 0 and words[number - 1] in ("!", "-not")
            if not is_negated and value.replace("./", "") not in _EVERYTHING:
                return True
    return False


def _under(start: Word, words: list[Word]) -> Word:
    """What is found below: a name if one is asked for."""
    for number, word in enumerate(words[:-1]):
        if word in ("-name", "-iname") and not (number and words[number - 1] in ("!", "-not")):
            return globbing(f"{start.rstrip('/')}/{words[number + 1]}")
    return Word(f"{start.rstrip('/')}/{UNKNOWN}")


def _fd(reader: Reader, command: Command) -> str:
    reader.record(command)
    for flag in ("-x", "--exec", "-X", "--exec-batch"):
        if flag in command.args:
            at = command.args.index(Word(flag))
            starts = [word for word in command.args[:at] if not word.startswith("-")][1:] or [Word(".")]
            words = command.args[at + 1 :]
            if not any("{" in word for word in words):
                words = [*words, Word("{}")]
            for start in starts:
                inner(
                    reader,
                    command,
                    [_replaced(word, "{}", f"{start.rstrip('/')}/{UNKNOWN}") for word in words],
                )
            return UNKNOWN
    return UNKNOWN


# ---- containers, git, others ----


def _container(reader: Reader, command: Command) -> str:
    """What runs inside of a container can hurt databases, hardly anything else."""
    reader.record(command)
    words = skip_options(
        command.args, "-H --host --context -c -f --file -p --project-name --profile -l --log-level"
    )
    if words[:1] == ["compose"]:
        words = skip_options(words[1:], "-f --file -p --project-name --profile --env-file")
    if words[:1] == ["container"]:
        words = words[1:]
    if not words or words[0] not in ("exec", "run"):
        return UNKNOWN
    valued = (
        "-e --env -u --user -w --workdir --name -v --volume -p --publish --network --net --entrypoint --mount --env-file"
        " -l --label --cpus -m --memory --platform --add-host --cap-add --cap-drop --device --pid --ipc --security-opt"
        " --hostname -h --index --restart --user --shm-size --gpus --ulimit --tmpfs --dns --expose --userns --uts"
    )
    rest = skip_options(words[1:], valued)[1:]
    if not rest:
        return UNKNOWN
    made = command.derived(rest[0], rest[1:], command.program)
    made.directory = None
    before, reader.contained = reader.contained, True
    made.contained = True
    try:
        return reader.run(made)
    finally:
        reader.contained = before


def _kubectl(reader: Reader, command: Command) -> str:
    reader.record(command)
    if "exec" in command.args and "--" in command.args:
        rest = command.args[command.args.index(Word("--")) + 1 :]
        if rest:
            made = command.derived(rest[0], rest[1:], command.program)
            made.directory = None
            return reader.run(made)
    return UNKNOWN


def _git(reader: Reader, command: Command) -> str:
    """Aliases with `!`, `bisect run`, `submodule foreach`, `rebase --exec` and others run commands."""
    reader.record(command)
    words = command.args
    for number, word in enumerate(words):
        behind = words[number + 1] if number + 1 < len(words) else Word("")
        if word == "-c" and "=" in behind:
            key, _, value = behind.partition("=")
            if value.startswith("!") or key.lower() in ("core.pager", "core.editor", "core.sshcommand"):
                reader.read_apart(value.lstrip("!"))
            elif key.startswith("alias."):
                reader.run(command.derived("git", [Word(each) for each in value.split()]))
        elif word == "config" and words[-1].startswith("!"):
            reader.read_apart(words[-1][1:])
        elif word == "run" and "bisect" in words:
            inner(reader, command, words[number + 1 :])
        elif word == "foreach" and "submodule" in words:
            reader.read_apart(" ".join(skip_options(words[number + 1 :], "")))
        elif word in ("-x", "--exec") and "rebase" in words and behind:
            reader.read_apart(behind)
        elif word.startswith("--exec=") and "rebase" in words:
            reader.read_apart(word[7:])
    from ralph.guard import outputs

    return outputs.of(reader, command)


def _sed(reader: Reader, command: Command) -> str:
    """GNU sed runs a command with `e`."""
    import re

    reader.record(command)
    for word in command.args:
        if found := re.search(r"(?:^|[;\n{}0-9$/])\s*e\s+(\S.*)", word):
            reader.read_apart(found[1])
    from ralph.guard import outputs

    return outputs.of(reader, command)


def _interpreter(program: str) -> Wrapper | None:
    if not language(program):
        return None
    from ralph.guard import code

    return code.run


def _last_as_text(reader: Reader, command: Command) -> str:
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
    "env": _env,
    "sudo": _sudo,
    "su": _su,
    "runuser": _su,
    "sg": _su,
    "xargs": _xargs,
    "gxargs": _xargs,
    "parallel": _parallel,
    "find": _find,
    "gfind": _find,
    "fd": _fd,
    "fdfind": _fd,
    "git": _git,
    "docker": _container,
    "podman": _container,
    "nerdctl": _container,
    "docker-compose": _container,
    "kubectl": _kubectl,
    "oc": _kubectl,
    "watch": _words_as_text("-n --interval"),
    "ssh": _words_as_text(
        "-p -i -l -o -F -J -L -R -D -W -w -b -c -e -E -I -m -O -Q -S",
        1,
    ),
    "concurrently": _each_as_text("-n --names -c"),
    "hyperfine": _each_as_text("-w -r --warmup --runs --export-json"),
    "nodemon": _option_as_text("-x --exec"),
    "watchexec": _words_as_text("-w -e -i --watch --exts --ignore"),
    "script": _option_as_text("-c --command"),
    "tar": _option_as_text("--to-command --checkpoint-action --use-compress-program -I"),
    "gtar": _option_as_text("--to-command --checkpoint-action --use-compress-program -I"),
    "bsdtar": _option_as_text("--use-compress-program"),
    "rsync": _option_as_text("-e --rsh --rsync-path"),
    "vi": _option_as_text("-c --cmd"),
    "vim": _option_as_text("-c --cmd"),
    "nvim": _option_as_text("-c --cmd"),
    "ex": _option_as_text("-c"),
    "man": _option_as_text("-P --pager"),
    "ansible": _option_as_text("-a --args"),
    "zip": _option_as_text("-TT --unzip-command"),
    "gcloud": _option_as_text("--command"),
    "sed": _sed,
    "gsed": _sed,
    "tmux": _last_as_text,
    "screen": _last_as_text,
}
