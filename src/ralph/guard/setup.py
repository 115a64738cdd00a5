"""Builds the context and the rules for a command from the environment and the settings."""

from __future__ import annotations

import os

from ralph.guard.judge import Guard
from ralph.shell.context import ShellContext
from ralph.shell.paths import is_temp

SETTINGS = ".ralph/settings.json"
MAX_BYTES = 1 << 20
FILE_OPTION = "--settings"


def context(directory: object = None) -> ShellContext:
    """Return the context to judge in. A missing or invalid directory falls back to the current one."""
    if not isinstance(directory, str) or not directory.startswith("/"):
        try:
            directory = os.getcwd()
        except OSError:
            directory = "/nowhere"
    env = dict(os.environ)
    found = ShellContext(_plain(directory), _home(env), env=env, own=_own(env))
    project = env.get("CLAUDE_PROJECT_DIR", "")
    is_away = is_temp(found.directory, found) and project.startswith("/") and os.path.isdir(project)
    found.top = top_of(_plain(project) if is_away else found.directory)
    return found


def _plain(path: str) -> str:
    return os.path.normpath(path).replace("//", "/")


def _home(env: dict[str, str]) -> str:
    home = env.get("HOME", "")
    if not home.startswith("/"):
        import pwd

        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            home = "/root"
    return _plain(home)


def _own(env: dict[str, str]) -> list[str]:
    """Return the directories that belong to Ralph: its state and the program itself."""
    found = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    if env.get("RALPH_STATE_DIR", "").startswith("/"):
        found.append(_plain(env["RALPH_STATE_DIR"]))
    if env.get("XDG_STATE_HOME", "").startswith("/"):
        found.append(_plain(env["XDG_STATE_HOME"]) + "/ralph")
    return found


def top_of(directory: str) -> str:
    """Return the top level of the repository that contains a directory, or the directory itself without one."""
    above = directory
    while above != "/":
        if os.path.lexists(f"{above}/.git"):
            return above
        above = os.path.dirname(above)
    return directory


def guard(context: ShellContext, arguments: list[str]) -> Guard | None:
    """Return the configured rules, or None if the guard is disabled.

    `--settings FILE` holds the settings as of the start of the run, stored where the agent cannot change them.
    """
    block: dict[str, object] = {}
    if FILE_OPTION in arguments:
        block = _read(arguments[arguments.index(FILE_OPTION) + 1])
    else:
        for name in (SETTINGS, SETTINGS.replace(".json", ".local.json")):
            found = _read(f"{context.top}/{name}").get("guard", {})
            if not isinstance(found, dict):
                raise TypeError(f"{name}: guard is not a JSON object")
            block = {**block, **found}
    if block.get("enabled") is False:
        return None
    return Guard(_patterns(block, "allow"), _patterns(block, "deny"))


def _read(path: str) -> dict[str, object]:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    import json

    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError(f"{path} is not a JSON object")
    return found


def _patterns(block: dict[str, object], key: str) -> list[tuple[str, str]]:
    found = block.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise TypeError(f"guard.{key} is not a list of rules")
    return [(str(each.get("pattern", "")), str(each.get("reason", ""))) for each in found]
