"""The small pattern language that most rules are written in.

    git push --force|-f        the program, its first operands, then options of which one must be present
    npm|pnpm publish           alternatives
    git push ~:*               an operand in any position that matches a glob
    docker run --pid=host      an option with its value, as one word or two
    apt remove !--dry-run      an option that must be absent

Requests for help, for a version or for a dry run never match.
"""

from __future__ import annotations

from ralph.shell.arguments import has_option
from ralph.shell.words import words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.command import SimpleCommand
    from ralph.shell.words import Word

# Options before the operands that take a value, so that the value is not mistaken for an operand.
_VALUED = {
    "git": "-C -c --git-dir --work-tree --namespace --exec-path",
    "docker": "-H --host --context -l --log-level --config -f --file --project-name",
    "docker-compose": "-f --file -p --project-name",
    "docker compose": "-f --file -p --project-name --profile --env-file",
    "podman": "--url --connection --log-level --root",
    "kubectl": "-n --namespace --context --kubeconfig --cluster --user -s --server",
    "oc": "-n --namespace --context --kubeconfig",
    "helm": "-n --namespace --kube-context --kubeconfig",
    "npm": "--prefix -w --workspace --registry --userconfig",
    "pnpm": "-C --dir -F --filter",
    "yarn": "--cwd",
    "aws": "--profile --region --output --endpoint-url --query --color",
    "gcloud": "--project --account --configuration --format --zone --region",
    "az": "--subscription --resource-group -g --output -o",
    "gh": "-R --repo",
    "glab": "-R --repo",
    "terraform": "-chdir",
    "make": "-C -f -j",
    "systemctl": "-H -M -t --root -n",
    "cargo": "--manifest-path --config -Z -C",
    "poetry": "-C --directory -P --project",
    "apt-get": "-o -c -t",
    "apt": "-o -c -t",
    "mvn": "-f -P -pl -s",
    "redis-cli": "-h -p -a -n -u --user --pass",
    "alembic": "-c -n -x --config --name",
    "flask": "--app -A",
    "ansible-playbook": "-i -e",
    "pulumi": "-C --cwd -s --stack",
    "fly": "-a --app -c --config",
    "flyctl": "-a --app -c --config",
    "vercel": "-t --token -S --scope --cwd",
    "doctl": "-t --access-token --context -c",
}
_HELP = {"--help", "-help"}
_SHORT_HELP = words_of("kubectl docker gh npm cargo terraform helm systemctl apt apt-get git gem")
_DRY = frozenset(
    words_of("--dry-run --dryrun --simulate --just-print --check-only --dry-run=client --dry-run=server")
)
_DRY |= {"-DdryRun", "-DdryRun=true", "-WhatIf", "--what-if", "--noop"}


def is_harmless(command: SimpleCommand) -> bool:
    """Whether the command only asks for help or does a dry run."""
    words = set(command.args)
    is_question = bool(words & _HELP) or (command.args[-1:] == ["-h"] and command.program in _SHORT_HELP)
    is_question = is_question or command.args in (["--version"], ["help"]) or command.args[:1] == ["help"]
    return is_question or bool(words & _DRY)


def operands(command: SimpleCommand) -> list[Word]:
    valued = _VALUED.get(command.program, "").split()
    found: list[Word] = []
    skip = False
    for number, word in enumerate(command.args):
        if skip:
            skip = False
        elif word == "--":
            return found + command.args[number + 1 :]
        elif word.startswith("-") and len(word) > 1:
            skip = word in valued
        elif word.startswith("+") and command.program == "cargo":
            continue  # a toolchain
        else:
            if not found:
                valued += _VALUED.get(f"{command.program} {word}", "").split()
            found.append(word)
    return found


def matches(pattern: str, command: SimpleCommand) -> bool:
    """Whether a command matches a pattern. The caller has already matched the program."""
    words = pattern.split()
    given: list[Word] | None = None
    at = 0
    for word in words[1:]:
        if word.startswith("!"):
            if any(has_option(command, option) for option in word[1:].split("|")):
                return False
        elif word.startswith("-"):
            if not any(has_option(command, option) for option in word.split("|")):
                return False
        else:
            if given is None:
                given = operands(command)
            if word.startswith("~"):
                if not any(_fits(each, word[1:]) for each in given):
                    return False
            else:
                if at >= len(given) or not _fits(given[at], word):
                    return False
                at += 1
    return not is_harmless(command)


def _fits(word: str, alternatives: str) -> bool:
    for each in alternatives.split("|"):
        if word == each:
            return True
        if "*" in each:
            from fnmatch import fnmatchcase

            if fnmatchcase(word, each):
                return True
    return False


def programs(pattern: str) -> list[str]:
    """Return the programs that a pattern names."""
    return pattern.split(None, 1)[0].split("|")
