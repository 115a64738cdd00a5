"""Destructive git commands: lost history, lost changes, changes on the remote, skipped hooks."""

from __future__ import annotations

from ralph.guard.model import DenyRule
from ralph.guard.patterns import is_harmless, operands
from ralph.shell import paths
from ralph.shell.arguments import has_option
from ralph.shell.command import ASSIGNMENT, SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.words import Word, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CATEGORY = "git"
_WHOLE = (".", "./", ":/", "*", "./*", "--", ":/*", ":")
_KEYS = words_of(
    "core.hookspath core.fsmonitor core.sshcommand core.gitproxy core.askpass credential.helper"
    " http.sslverify http.proxy receive.denynonfastforwards gpg.program"
)
_SKIPS = ("HUSKY", "HUSKY_SKIP_HOOKS", "SKIP", "LEFTHOOK", "PRE_COMMIT_ALLOW_NO_CONFIG", "OVERCOMMIT_DISABLE")


def _verb(command: SimpleCommand) -> tuple[str, list[Word]]:
    found = operands(command) if command.program == "git" and not is_harmless(command) else []
    return (found[0], found[1:]) if found else ("", [])


def _is_scratch(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether the command runs in a temporary repository under /tmp, where it can only lose its own work."""
    where = command.directory
    if where is None or paths.is_under(where, context.top) or not paths.is_temp(where, context):
        return False
    if any(word.startswith(("-C", "--git-dir", "--work-tree")) for word in command.args):
        return False
    named = [paths.resolve(word, where, context) or "" for word in command.args]
    is_elsewhere = any(paths.is_under(path, context.top) for path in named)
    return not is_elsewhere and not any(name.startswith("GIT_") for name in command.assigns)


def _reset(command: SimpleCommand, context: ShellContext) -> bool:
    verb, _ = _verb(command)
    return verb == "reset" and (has_option(command, "--hard") or has_option(command, "--merge"))


def _kept(
    match: Callable[[SimpleCommand, ShellContext], bool],
) -> Callable[[SimpleCommand, ShellContext], bool]:
    """The same match, except in temporary repositories."""
    return lambda command, context: match(command, context) and not _is_scratch(command, context)


def _names_all(words: list[Word], command: SimpleCommand, context: ShellContext) -> bool:
    for word in words:
        if word in _WHOLE:
            return True
        path = paths.resolve(word, command.directory, context)
        if path is not None and paths.contents(path, word) == context.top:
            return True
    return False


def _force_push(command: SimpleCommand, context: ShellContext) -> bool:
    verb, words = _verb(command)
    if verb != "push" or has_option(command, "-n"):
        return False
    forced = ("--force", "-f", "--force-with-lease", "--force-if-includes", "--mirror", "--prune")
    return any(has_option(command, each) for each in forced) or any(
        word.startswith("+") for word in words[1:]
    )


def _delete_remote(command: SimpleCommand, context: ShellContext) -> bool:
    verb, words = _verb(command)
    if verb != "push" or has_option(command, "-n"):
        return False
    gone = any(word.startswith(":") and len(word) > 1 for word in words[1:])
    return gone or has_option(command, "--delete") or has_option(command, "-d")


def _push_elsewhere(command: SimpleCommand, context: ShellContext) -> bool:
    verb, words = _verb(command)
    if verb != "push" or not words:
        return False
    return "://" in words[0] or ("@" in words[0] and ":" in words[0])


def _discard(command: SimpleCommand, context: ShellContext) -> bool:
    verb, words = _verb(command)
    if verb == "checkout":
        if has_option(command, "--force") or has_option(command, "-f"):
            return True
        behind = command.args[command.args.index(Word("--")) + 1 :] if "--" in command.args else words
        return _names_all([word for word in behind if word != "--"], command, context)
    if verb == "restore":
        is_staged = has_option(command, "--staged") or has_option(command, "-S")
        is_tree = has_option(command, "--worktree") or has_option(command, "-W")
        return (is_tree or not is_staged) and _names_all(words, command, context)
    if verb == "switch":
        return any(has_option(command, each) for each in ("--discard-changes", "--force", "-f"))
    if verb == "checkout-index":
        return has_option(command, "-f") and has_option(command, "-a")
    return verb == "read-tree" and has_option(command, "--reset")


def _clean(command: SimpleCommand, context: ShellContext) -> bool:
    verb, words = _verb(command)
    if verb != "clean" or has_option(command, "-n"):
        return False
    if not (has_option(command, "-f") or has_option(command, "--force") or _forces_clean(command)):
        return False
    return not words or _names_all(words, command, context)


def _forces_clean(command: SimpleCommand) -> bool:
    return any(word.lower() == "clean.requireforce=false" for word in command.args)


def _remove_all(command: SimpleCommand, context: ShellContext) -> bool:
    verb, words = _verb(command)
    if verb != "rm" or has_option(command, "--cached") or has_option(command, "-n"):
        return False
    return has_option(command, "-r") and _names_all(words, command, context)


def _branches(command: SimpleCommand, context: ShellContext) -> bool:
    verb, _ = _verb(command)
    if verb != "branch":
        return False
    is_forced = has_option(command, "-f") or has_option(command, "--force")
    return has_option(command, "-D") or is_forced


def _skip_hooks(command: SimpleCommand, context: ShellContext) -> bool:
    verb, _ = _verb(command)
    if verb in ("commit", "push", "merge", "am", "rebase", "cherry-pick", "pull", "revert"):
        if has_option(command, "--no-verify") or (verb == "commit" and _short_n(command)):
            return True
        return any(name in command.assigns for name in _SKIPS)
    return False


def _short_n(command: SimpleCommand) -> bool:
    """Whether short options include `-n`, as in `-an` or `-anm`. Letters after one that takes a value are its value."""
    for word in command.args:
        if word.startswith("-") and not word.startswith("--"):
            for letter in word[1:]:
                if letter == "n":
                    return True
                if letter in "mFcCtuS":
                    break
    return False


def _skip_variable(command: SimpleCommand, context: ShellContext) -> bool:
    return command.program == ASSIGNMENT and command.args[0] in words_of(
        "HUSKY HUSKY_SKIP_HOOKS LEFTHOOK OVERCOMMIT_DISABLE"
    )


def _settings(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether a git setting that runs code or skips checks is set, in whatever way."""
    if any(name.startswith("GIT_CONFIG") for name in command.assigns):
        return True
    if command.program == ASSIGNMENT and command.args[0].startswith(("GIT_CONFIG_", "GIT_SSH_COMMAND")):
        return True
    if command.program != "git":
        return False
    words = command.args
    for number, word in enumerate(words):
        if word == "-c" and number + 1 < len(words) and _is_key(words[number + 1].partition("=")[0]):
            return True
        if word.startswith("--config-env=") and _is_key(word.partition("=")[2].partition("=")[0]):
            return True
    verb, rest = _verb(command)
    if verb != "config" or not rest or _reads_config(command, rest):
        return False
    return any(_is_key(word) for word in rest)


def _is_key(key: str) -> bool:
    key = key.lower()
    return key in _KEYS or key.endswith(
        (".insteadof", ".pushinsteadof", ".textconv", ".clean", ".smudge", ".process")
    )


def _reads_config(command: SimpleCommand, rest: list[Word]) -> bool:
    asks = ("--get", "--list", "-l", "--get-all", "--get-regexp", "--show-origin", "--get-urlmatch")
    if any(has_option(command, each) for each in asks) or rest[:1] in (["get"], ["list"]):
        return True
    changes = words_of("--unset --unset-all --add --replace-all --remove-section --rename-section -e --edit")
    return len(rest) < 2 and not any(has_option(command, each) for each in changes)


def _global(command: SimpleCommand, context: ShellContext) -> bool:
    verb, rest = _verb(command)
    if verb != "config" or _reads_config(command, rest):
        return False
    return has_option(command, "--global") or has_option(command, "--system")


_HISTORY = "Destroys history that may be needed to recover work. Leave it and commit on top instead."

RULES = (
    DenyRule(
        "git-force-push",
        CATEGORY,
        "Overwrites history on the remote. Push without force; if the push is rejected, pull or merge first.",
        _force_push,
    ),
    DenyRule(
        "git-delete-remote",
        CATEGORY,
        "Deletes a branch or tag on the remote. Leave that to the user.",
        _delete_remote,
    ),
    DenyRule(
        "git-push-elsewhere",
        CATEGORY,
        "Pushes to a URL instead of a configured remote. Push to a remote by name.",
        _push_elsewhere,
    ),
    DenyRule(
        "git-reset-hard",
        CATEGORY,
        "Discards uncommitted work. Commit or stash first, or use `git reset --soft` or `git revert`.",
        _kept(_reset),
    ),
    DenyRule(
        "git-discard",
        CATEGORY,
        "Discards all uncommitted work. Name the files to restore, or stash them.",
        _kept(_discard),
    ),
    DenyRule(
        "git-clean",
        CATEGORY,
        "Deletes all untracked files. List them with `git clean -n` and delete individual files by name.",
        _kept(_clean),
    ),
    DenyRule(
        "git-remove-all",
        CATEGORY,
        "Deletes every tracked file. Name the files to delete.",
        _kept(_remove_all),
    ),
    DenyRule(
        "git-force-branch",
        CATEGORY,
        "Deletes or moves a branch even if its commits exist nowhere else. Use `git branch -d`.",
        _branches,
    ),
    DenyRule(
        "git-stash-drop",
        CATEGORY,
        "Discards stashed work. Leave stashes as they are.",
        "git stash drop|clear",
    ),
    DenyRule(
        "git-prune",
        CATEGORY,
        _HISTORY,
        (
            "git reflog expire|delete",
            "git gc --prune=now|--prune=all|--prune=0|--aggressive=x",
            "git prune",
            "git update-ref",
            "git symbolic-ref -d|--delete",
            "git lfs prune",
        ),
    ),
    DenyRule(
        "git-rewrite",
        CATEGORY,
        "Rewrites the whole history. Leave that to the user.",
        (
            "git rebase --root",
            "git filter-branch|filter-repo|replace|fast-import",
            "git-filter-repo|bfg|git-filter-branch",
            "java ~*bfg*.jar",
        ),
    ),
    DenyRule(
        "git-tag-delete",
        CATEGORY,
        "Deletes or moves a tag. Leave tags to the user.",
        "git tag -d|--delete|-f|--force",
    ),
    DenyRule(
        "git-worktree-remove",
        CATEGORY,
        "Removes a worktree even if it has uncommitted work. Remove it without --force, or leave it.",
        "git worktree remove --force|-f",
    ),
    DenyRule(
        "git-remote",
        CATEGORY,
        "Changes or removes a remote. Leave remotes to the user.",
        "git remote set-url|remove|rm|rename",
    ),
    DenyRule(
        "git-skip-hooks",
        CATEGORY,
        "Skips the project's hooks. Run them and fix what they report.",
        _kept(_skip_hooks),
    ),
    DenyRule(
        "git-skip-variable",
        CATEGORY,
        "Turns off the project's hooks. Run them and fix what they report.",
        _skip_variable,
    ),
    DenyRule(
        "git-uninstall-hooks",
        CATEGORY,
        "Uninstalls the project's hooks. Keep them and fix what they report.",
        "pre-commit|husky|lefthook|overcommit uninstall|--uninstall",
    ),
    DenyRule(
        "git-settings",
        CATEGORY,
        "Sets a git option that runs code or skips checks. Run git without it.",
        _settings,
    ),
    DenyRule(
        "git-global",
        CATEGORY,
        "Changes git for all of the user's projects. Set it for this repository only, without --global or --system.",
        _global,
    ),
    DenyRule(
        "git-credentials",
        "secrets",
        "Prints the user's credentials. Git uses them on its own.",
        ("git credential fill|approve", "git config ~*.extraheader|*.password|*token*"),
    ),
    DenyRule(
        "git-submodule-deinit",
        CATEGORY,
        "Discards the work in a submodule. Run it without --force.",
        "git submodule deinit --force|-f",
    ),
    DenyRule(
        "git-external",
        "remote-code",
        "Uses a git URL that runs a command. Use https or ssh.",
        "git clone|fetch|pull|remote ~ext::*",
    ),
)
