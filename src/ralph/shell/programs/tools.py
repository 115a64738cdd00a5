"""Programs that can run a command besides their main purpose: git, make, containers, databases, editors."""

from __future__ import annotations

import re

from ralph.shell import effects
from ralph.shell.arguments import skip_options, values_of
from ralph.shell.programs import outputs
from ralph.shell.steps import inner, read_aside
from ralph.shell.words import UNKNOWN, Word, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.command import SimpleCommand
    from ralph.shell.state import ShellState
    from ralph.shell.steps import Emulation, Step, Steps


# ---- git ----

_COMMAND_KEYS = (
    r"(?i)core\.(?:pager|editor|sshcommand|askpass|fsmonitor|gitproxy)|sequence\.editor|diff\.external|gpg\.program|pager\..+"
    r"|interactive\.difffilter|.+\.(?:textconv|clean|smudge|process|cmd|driver|command|helper|packobjectshook)"
)
"""Settings whose value is a command."""


def _git(shell: ShellState, command: SimpleCommand) -> Steps:
    """Find commands in aliases with `!`, pagers and editors, `bisect run`, `submodule foreach`, `rebase --exec` etc."""
    if "push" in command.args:
        command.args = [Word(shell.remotes.get(word, word)) for word in command.args]
    words = command.args
    if words[:2] == ["remote", "add"]:
        shell.remotes[words[-2]] = words[-1]
    steps: list[Step] = []
    for number, word in enumerate(words):
        rest = words[number + 1 :]
        if word == "-c" and rest and "=" in rest[0]:
            steps += _git_setting(command, *rest[0].split("=", 1))
        elif word == "config":
            pair = [each for each in rest if not each.startswith("-") and each != "set"]
            steps += _git_setting(command, pair[0], pair[1]) if len(pair) > 1 else []
            break
        elif word == "run" and "bisect" in words:
            steps += inner(command, rest)
        elif word == "foreach" and "submodule" in words:
            steps += read_aside(" ".join(skip_options(rest, "")))
    options = "--exec --extcmd --upload-pack --receive-pack --open-files-in-pager"
    if {"rebase", "difftool"} & set(words):
        options += " -x"
    return [*steps, *read_aside(*values_of(words, options)), *outputs.of(shell, command)]


def _git_setting(command: SimpleCommand, key: str, value: str) -> list[Step]:
    if value.startswith("!") or re.fullmatch(_COMMAND_KEYS, key):
        return read_aside(value.lstrip("!"))
    if key.lower().startswith("alias."):
        return [command.derived("git", [Word(each) for each in value.split()])]
    return []


# ---- build tools ----


def _make(shell: ShellState, command: SimpleCommand) -> Steps:
    """Run the recipes of a Makefile that the command itself has written or passes on stdin."""
    if {"-n", "--just-print", "--dry-run", "--recon"} & set(command.args):
        return UNKNOWN
    usual = words_of("Makefile makefile GNUmakefile")
    named = tuple(values_of(command.args, "-f --file --makefile")) or usual
    goals = [word for word in command.args if word[:1] != "-"]
    texts = [_recipes(_given(shell, command, name), goals) for name in named]
    texts += [_recipes(text) for text in values_of(command.args, "--eval -E")]
    return [*read_aside(*texts), UNKNOWN]


def _given(shell: ShellState, command: SimpleCommand, name: str) -> str:
    return command.stdin if name in ("-", "/dev/stdin") else shell.content(name)


def _recipes(text: str, goals: list[Word] | None = None) -> str:
    """Return the commands that make would pass to the shell, with make variables as shell variables.

    If the goals are known, recipes that none of them needs are left out.
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


def package_scripts(shell: ShellState, command: SimpleCommand) -> list[Step]:
    """Run scripts from `npm pkg set scripts.x=…` and from a package.json that the command itself has written."""
    texts: list[str] = []
    if command.args[:2] == ["pkg", "set"]:
        texts = [word.partition("=")[2] for word in command.args[2:] if word.startswith("scripts.")]
    _, _, scripts = shell.content("package.json").partition('"scripts"')
    written = re.findall(r":\s*\"((?:[^\"\\]|\\.)*)\"", scripts.partition("}")[0])
    return read_aside(*texts, *(value.replace('\\"', '"') for value in written))


# ---- containers ----

_CONTAINER_OPTIONS = (
    "-e --env -u --user -w --workdir --name -v --volume -p --publish --network --net --entrypoint --mount --env-file"
    " -l --label --cpus -m --memory --platform --add-host --cap-add --cap-drop --device --pid --ipc --security-opt"
    " --hostname -h --index --restart --user --shm-size --gpus --ulimit --tmpfs --dns --expose --userns --uts"
)
_RUNNING = (("/", ""),)
"""The mounts of an existing container: all its files persist."""
_COMPOSE_FILES = ["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"]


def _container(shell: ShellState, command: SimpleCommand) -> Steps:
    """Run the command of a container. It can harm databases and mounted files, but hardly anything else."""
    words = skip_options(
        command.args, "-H --host --context -c -f --file -p --project-name --profile -l --log-level"
    )
    if command.program.endswith("compose") or words[:1] == ["compose"]:
        command.code = _manifest(shell, command, _COMPOSE_FILES)
    if words[:1] == ["compose"]:
        words = skip_options(words[1:], "-f --file -p --project-name --profile --env-file")
    if words[:1] == ["container"]:
        words = words[1:]
    if not words or words[0] not in ("exec", "run"):
        return UNKNOWN
    rest = skip_options(words[1:], _CONTAINER_OPTIONS)[1:]
    options = words[1 : len(words) - len(rest)]
    mounts = tuple(
        (target, (shell.path(source) or "") if source.startswith(("/", ".")) else "")
        for source, target in effects.mounts(command)
        if target.startswith("/")
    )
    directory = next(values_of(options, "-w --workdir"), None)
    entry = [*values_of(options, "--entrypoint")]
    return _inside(command, [*entry, *rest], _RUNNING if words[0] == "exec" else mounts, directory)


def _inside(
    command: SimpleCommand,
    words: list[Word],
    mounts: tuple[tuple[str, str], ...],
    directory: str | None = None,
) -> Steps:
    if not words:
        return UNKNOWN
    made = command.derived(words[0], words[1:], command.program)
    made.mounts, made.directory = mounts, directory
    return [made]


def _kubectl(shell: ShellState, command: SimpleCommand) -> Steps:
    command.code = _manifest(shell, command, [])
    command.code += "\n".join(values_of(command.args, "--overrides --override-type --patch -p"))
    if "exec" in command.args and "--" in command.args:
        return _inside(command, command.args[command.args.index(Word("--")) + 1 :], _RUNNING)
    return UNKNOWN


def _manifest(shell: ShellState, command: SimpleCommand, usual: list[str]) -> str:
    """Return the description of containers, as far as the command itself contains it."""
    names = [*values_of(command.args, "-f --file --filename")] or usual
    return "\n".join(_given(shell, command, name) for name in names)


# ---- programs with their own language and a shell escape ----

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
}
"""By program: the part of a line in its language that it passes to the shell."""
_SAME = {
    "mysql": "mariadb mycli",
    "psql": "pgcli",
    "sqlite3": "sqlite litecli duckdb",
    "vim": "vi nvim ex view ed red gvim vimdiff",
    "less": "more most",
    "ftp": "sftp lftp tftp telnet mail mailx mutt",
    "gdb": "lldb pdb",
}


def _escaping(program: str) -> Emulation:
    def emulate(shell: ShellState, command: SimpleCommand) -> Steps:
        scripts = [shell.content(name) for name in values_of(command.args, "-f --file --init -s -S -x")]
        command.code = "\n".join(scripts)
        steps: list[Step] = []
        for text in [*command.args, command.stdin, *scripts]:
            value = text.partition("=")[2] if text.startswith("--") else text
            for line in value.split("\n"):
                if found := re.search(_ESCAPES[program], line.strip()):
                    steps += read_aside(next(group for group in found.groups() if group).strip("'\" "))
        return [*steps, *outputs.of(shell, command)]

    return emulate


def _option_as_text(options: str) -> Emulation:
    """Emulate programs with an option whose value is a command line: script -c, tar --to-command."""

    def emulate(shell: ShellState, command: SimpleCommand) -> Steps:
        texts = [text.removeprefix("exec=") for text in values_of(command.args, options)]
        texts = [text for text in texts if not text.startswith(("sleep=", "echo", "dot"))]
        return [*read_aside(*texts), *outputs.of(shell, command)]

    return emulate


def _entr(shell: ShellState, command: SimpleCommand) -> Steps:
    """Run the operands as a command, or with `-s` as a shell command line."""
    words = skip_options(command.args, "")
    if any(word.startswith("-") and "s" in word for word in command.args):
        return [*read_aside(" ".join(words)), UNKNOWN]
    return inner(command, words)


def _sed(shell: ShellState, command: SimpleCommand) -> Steps:
    """Run the commands of GNU sed's `e`."""
    texts: list[str] = []
    for word in command.args:
        if found := re.search(r"(?:^|[;\n{}0-9$/])\s*e\s+(\S.*)", word):
            texts.append(found[1])
        parts = word[2:].split(word[1:2] or "/") if word[:1] == "s" and not word[1:2].isalnum() else []
        if len(parts) == 3 and "e" in parts[2] and parts[2].isalpha():
            texts.append(parts[1])
    return [*read_aside(*texts), *outputs.of(shell, command)]


TABLE: dict[str, Emulation] = {
    **{
        name: _escaping(program)
        for program in _ESCAPES
        for name in (program, *_SAME.get(program, "").split())
    },
    **dict.fromkeys(("make", "gmake"), _make),
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose", "podman-compose"), _container),
    **dict.fromkeys(("kubectl", "oc"), _kubectl),
    **dict.fromkeys(("sed", "gsed"), _sed),
    **dict.fromkeys(
        ("tar", "gtar", "bsdtar"),
        _option_as_text("--to-command --checkpoint-action --use-compress-program -I"),
    ),
    "git": _git,
    "nix-shell": _option_as_text("--run --command"),
    "entr": _entr,
    "nodemon": _option_as_text("-x --exec"),
    "script": _option_as_text("-c --command"),
    "rsync": _option_as_text("-e --rsh --rsync-path"),
    "man": _option_as_text("-P --pager"),
    "ansible": _option_as_text("-a --args"),
    "zip": _option_as_text("-TT --unzip-command"),
}
