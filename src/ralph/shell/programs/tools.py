"""Programs that run a command beside what they are for: git, make, containers, databases, editors."""

from __future__ import annotations

import re

from ralph.shell import effects
from ralph.shell.arguments import inner, skip_options, values_of
from ralph.shell.programs import outputs
from ralph.shell.words import UNKNOWN, Word, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.arguments import Wrapper
    from ralph.shell.command import SimpleCommand
    from ralph.shell.reader import ShellReader

COMMAND_VARIABLES = frozenset(
    words_of(
        "GIT_SSH_COMMAND GIT_SSH GIT_PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_EXTERNAL_DIFF GIT_ASKPASS"
        " GIT_PROXY_COMMAND PAGER MANPAGER EDITOR VISUAL FCEDIT BROWSER LESSOPEN LESSCLOSE SSH_ASKPASS"
        " RSYNC_RSH CVS_RSH"
    )
)
"""Variables whose value is a command that some program runs."""


# ---- git ----

_COMMAND_KEYS = (
    r"(?i)core\.(?:pager|editor|sshcommand|askpass|fsmonitor|gitproxy)|sequence\.editor|diff\.external|gpg\.program|pager\..+"
    r"|interactive\.difffilter|.+\.(?:textconv|clean|smudge|process|cmd|driver|command|helper|packobjectshook)"
)
"""Settings whose value is a command."""


def git(reader: ShellReader, command: SimpleCommand) -> str:
    """Aliases with `!`, pagers and editors, `bisect run`, `submodule foreach`, `rebase --exec` and others."""
    if "push" in command.args:
        command.args = [Word(reader.state.remotes.get(word, word)) for word in command.args]
    reader.record(command)
    words = command.args
    if words[:2] == ["remote", "add"]:
        reader.state.remotes[words[-2]] = words[-1]
    for number, word in enumerate(words):
        behind = words[number + 1] if number + 1 < len(words) else Word("")
        if word == "-c" and "=" in behind:
            key, _, value = behind.partition("=")
            _git_setting(reader, command, key, value)
        elif word == "config":
            pair = [each for each in words[number + 1 :] if not each.startswith("-") and each != "set"]
            if len(pair) > 1:
                _git_setting(reader, command, pair[0], pair[1])
            break
        elif word == "run" and "bisect" in words:
            inner(reader, command, words[number + 1 :])
        elif word == "foreach" and "submodule" in words:
            reader.read_apart(" ".join(skip_options(words[number + 1 :], "")))
    options = "--exec --extcmd --upload-pack --receive-pack --open-files-in-pager"
    if {"rebase", "difftool"} & set(words):
        options += " -x"
    for text in values_of(words, options):
        _read(reader, text)
    return outputs.of(reader, command)


def _git_setting(reader: ShellReader, command: SimpleCommand, key: str, value: str) -> None:
    if value.startswith("!") or re.fullmatch(_COMMAND_KEYS, key):
        _read(reader, value.lstrip("!"))
    elif key.lower().startswith("alias."):
        reader.run(command.derived("git", [Word(each) for each in value.split()]))


# ---- build tools ----


def make(reader: ShellReader, command: SimpleCommand) -> str:
    """A Makefile that the command itself has written, or hands over."""
    reader.record(command)
    if {"-n", "--just-print", "--dry-run", "--recon"} & set(command.args):
        return UNKNOWN
    named = [*values_of(command.args, "-f --file --makefile")]
    for name in named or [Word("Makefile"), Word("makefile"), Word("GNUmakefile")]:
        text = command.stdin if name in ("-", "/dev/stdin") else outputs.content(reader, name)
        _read(reader, _recipes(text, [word for word in command.args if word[:1] != "-"]))
    for text in values_of(command.args, "--eval -E"):
        _read(reader, _recipes(text))
    return UNKNOWN


def _recipes(text: str, goals: list[Word] | None = None) -> str:
    """What make would hand to the shell, with its variables as those of the shell.

    With goals that are all in there: without the recipes that none of them needs.
    """
    rules = {
        target: found[2].split()
        for found in re.finditer(r"(?m)^([^\s#=][^#=:\n]*):(?![=:])([^\n;#]*)", text)
        for target in found[1].split()
    }
    needed = {str(goal) for goal in goals or () if goal in rules}
    for _ in rules:
        needed |= {each for target in list(needed) for each in rules.get(target, ())}
    lines: list[str] = []
    target = ""
    for line in text.replace("\\\n", " ").split("\n"):
        lines += [f": $({found})" for found in re.findall(r"\$\(shell ([^()]*)\)", line)]
        line = re.sub(r"\$\(shell [^()]*\)", "", line)
        line = re.sub(r"\$[({](\w+)[)}]", r"${\1}", line).replace("$$", "$")
        if found := re.match(r"([^\s#=][^#=:]*):(?!=)", line):
            target = found[1]
        is_needed = not needed or "%" in target or bool(needed & set(target.split()))
        if not is_needed and (line.startswith("\t") or found):
            continue
        if line.startswith("\t"):
            lines.append(line.lstrip("\t @+-"))
        elif found := re.match(r"(\w+)\s*[:?+]*=\s*(.*)", line):
            lines.append(f'{found[1]}="{found[2]}"')
        elif found := re.match(r"[^#=]+:[^=;]*;\s*(.*)", line):
            lines.append(found[1].lstrip("@+-"))
    return "\n".join(lines)


def package_scripts(reader: ShellReader, command: SimpleCommand) -> None:
    """`npm pkg set scripts.x=…`, and the scripts of a package.json that the command itself has written."""
    if command.args[:2] == ["pkg", "set"]:
        for word in command.args[2:]:
            if word.startswith("scripts."):
                _read(reader, word.partition("=")[2])
    text = outputs.content(reader, Word("package.json"))
    _, _, scripts = text.partition('"scripts"')
    for value in re.findall(r":\s*\"((?:[^\"\\]|\\.)*)\"", scripts.partition("}")[0]):
        _read(reader, value.replace('\\"', '"'))


# ---- containers ----

_CONTAINER_OPTIONS = (
    "-e --env -u --user -w --workdir --name -v --volume -p --publish --network --net --entrypoint --mount --env-file"
    " -l --label --cpus -m --memory --platform --add-host --cap-add --cap-drop --device --pid --ipc --security-opt"
    " --hostname -h --index --restart --user --shm-size --gpus --ulimit --tmpfs --dns --expose --userns --uts"
)
_RUNNING = (("/", ""),)
"""The mounts of a container that was there before: all that it has is kept."""
_COMPOSE_FILES = ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"]


def container(reader: ShellReader, command: SimpleCommand) -> str:
    """What runs inside of a container can hurt databases and what is mounted, hardly anything else."""
    words = skip_options(
        command.args, "-H --host --context -c -f --file -p --project-name --profile -l --log-level"
    )
    is_compose = command.program.endswith("compose") or words[:1] == ["compose"]
    if is_compose:
        command.code = _manifest(reader, command, _COMPOSE_FILES)
    reader.record(command)
    if words[:1] == ["compose"]:
        words = skip_options(words[1:], "-f --file -p --project-name --profile --env-file")
    if words[:1] == ["container"]:
        words = words[1:]
    if not words or words[0] not in ("exec", "run"):
        return UNKNOWN
    rest = skip_options(words[1:], _CONTAINER_OPTIONS)[1:]
    entry = [*values_of(words[1 : len(words) - len(rest)], "--entrypoint")]
    directory = [*values_of(words[1 : len(words) - len(rest)], "-w --workdir")]
    mounts = tuple(
        (target, (reader.path(source) or "") if source.startswith(("/", ".")) else "")
        for source, target in effects.mounts(command)
        if target.startswith("/")
    )
    if words[0] == "exec":
        mounts = _RUNNING
    return _inside(reader, command, [*entry, *rest], mounts, directory)


def _inside(
    reader: ShellReader,
    command: SimpleCommand,
    words: list[Word],
    mounts: tuple[tuple[str, str], ...],
    directory: list[Word],
) -> str:
    if not words:
        return UNKNOWN
    made = command.derived(words[0], words[1:], command.program)
    before, state = reader.mounts, reader.state
    reader.mounts, reader.state = mounts, state.copy()
    reader.state.directory = made.directory = directory[0] if directory else None
    made.mounts = mounts
    try:
        return reader.run(made)
    finally:
        reader.mounts, reader.state = before, state


def kubectl(reader: ShellReader, command: SimpleCommand) -> str:
    command.code = _manifest(reader, command, [])
    command.code += "\n".join(values_of(command.args, "--overrides --override-type --patch -p"))
    reader.record(command)
    if "exec" in command.args and "--" in command.args:
        rest = command.args[command.args.index(Word("--")) + 1 :]
        return _inside(reader, command, rest, _RUNNING, [])
    return UNKNOWN


def _manifest(reader: ShellReader, command: SimpleCommand, usual: list[str]) -> str:
    """The description of containers, as far as the command itself has it."""
    names = [*values_of(command.args, "-f --file --filename")] or [Word(name) for name in usual]
    texts = [
        command.stdin if name in ("-", "/dev/stdin") else outputs.content(reader, name) for name in names
    ]
    return "\n".join(texts)


# ---- languages of their own with a way out to the shell ----

_BANG = r"^!+(.+)"
_EDITOR = (
    r"^[+:]{0,2}(?:sil\w{0,3}!? ?)?[\d,.$%'<>]{0,20}(?:[rwe] ?)?!(.+)|(?:system|execute)\(['\"](.+?)['\"]\)"
    r"|^[+:]{0,2}term\w{0,5} (.+)"
)
_ESCAPES = {
    "psql": r"\\!(.+)|\\[ogw] ?\|(.+)|(?i:\bprogram) {0,9}'([^']+)'",
    "mysql": r"\\!(.+)|^system (.+)|^(?:\\P|pager) (.+)",
    "sqlite3": r"^\.(?:shell|system) (.+)|^\.(?:output|once|import) ['\"]?\|(.+)",
    "gdb": r"^(?:shell |!|pipe [^|]*\|)(.+)|system\(\\?['\"](.+?)\\?['\"]\)",
    "gnuplot": r"^!(.+)|system ?\(?['\"](.+?)['\"]",
    "vim": _EDITOR,
    "less": r"^\+?!(.+)",
    "ftp": _BANG,
    "m4": r"e?syscmd\(`?([^')]+)",
    "ghci": r"^:!(.+)",
    "crash": _BANG,
}
"""By program: what a line of its own language hands to the shell."""
_SAME = {
    "mysql": "mariadb mycli",
    "psql": "pgcli",
    "sqlite3": "sqlite litecli duckdb",
    "vim": "vi nvim ex view ed red gvim vimdiff",
    "less": "more most",
    "ftp": "sftp lftp tftp telnet mail mailx mutt bc",
    "gdb": "lldb pdb",
}


def _escaping(program: str) -> Wrapper:
    def run(reader: ShellReader, command: SimpleCommand) -> str:
        scripts = [
            outputs.content(reader, name) for name in values_of(command.args, "-f --file --init -s -S -x")
        ]
        command.code = "\n".join(scripts)
        reader.record(command)
        for text in [*command.args, command.stdin, *scripts]:
            value = text.partition("=")[2] if text.startswith("--") else text
            for line in value.split("\n"):
                if found := re.search(_ESCAPES[program], line.strip()):
                    _read(reader, next(group for group in found.groups() if group).strip("'\" "))
        return outputs.of(reader, command)

    return run


def _option_as_text(options: str) -> Wrapper:
    """The value of an option is a command line: script -c, tar --to-command."""

    def run(reader: ShellReader, command: SimpleCommand) -> str:
        reader.record(command)
        for text in values_of(command.args, options):
            text = Word(text.removeprefix("exec="))
            if not text.startswith(("sleep=", "echo", "dot")):
                _read(reader, text)
        return outputs.of(reader, command)

    return run


def entr(reader: ShellReader, command: SimpleCommand) -> str:
    """A command, or with `-s` a line for the shell."""
    words = skip_options(command.args, "")
    if any(word.startswith("-") and "s" in word for word in command.args):
        reader.record(command)
        _read(reader, " ".join(words))
        return UNKNOWN
    return inner(reader, command, words)


def sed(reader: ShellReader, command: SimpleCommand) -> str:
    """GNU sed runs a command with `e`."""
    reader.record(command)
    for word in command.args:
        if found := re.search(r"(?:^|[;\n{}0-9$/])\s*e\s+(\S.*)", word):
            _read(reader, found[1])
        parts = word[2:].split(word[1:2] or "/") if word[:1] == "s" and not word[1:2].isalnum() else []
        if len(parts) == 3 and "e" in parts[2] and parts[2].isalpha():
            _read(reader, parts[1])
    return outputs.of(reader, command)


def _read(reader: ShellReader, text: str) -> None:
    if text.strip() and text.strip() != UNKNOWN:
        reader.read_apart(text)


TABLE: dict[str, Wrapper] = {
    **{
        name: _escaping(program)
        for program in _ESCAPES
        for name in (program, *_SAME.get(program, "").split())
    },
    **dict.fromkeys(("make", "gmake"), make),
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose", "podman-compose"), container),
    **dict.fromkeys(("kubectl", "oc"), kubectl),
    **dict.fromkeys(("sed", "gsed"), sed),
    **dict.fromkeys(
        ("tar", "gtar", "bsdtar"),
        _option_as_text("--to-command --checkpoint-action --use-compress-program -I"),
    ),
    "git": git,
    "nix-shell": _option_as_text("--run --command"),
    "entr": entr,
    "nodemon": _option_as_text("-x --exec"),
    "script": _option_as_text("-c --command"),
    "rsync": _option_as_text("-e --rsh --rsync-path"),
    "man": _option_as_text("-P --pager"),
    "ansible": _option_as_text("-a --args"),
    "zip": _option_as_text("-TT --unzip-command"),
    "gcloud": _option_as_text("--command"),
}
