"""Load the settings from the settings file, the local file next to it, and flags. Keep the source of each value."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from ralph.core.model import FailAction, Network, Occasion, Permissions, PromptVia, RestartKind
from ralph.core.text import is_text
from ralph.errors import RalphError
from ralph.files.jsonfile import JsonDocument, dotted, read_object, scalars

DEFAULT_PATH = Path(".ralph/settings.json")
MAX_BYTES = 1 << 20
DEFAULT = "default"
SECRET = "(redacted)"

Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]
Word = Annotated[str, Meta(min_length=1)]


def says(description: str) -> Meta:
    """The description of a key in the JSON Schema and in docs/settings.md."""
    return Meta(description=description)


class _Base(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=False):
    pass


class CommandSettings(_Base, frozen=True):
    """An agent command."""

    command: Annotated[str, says("Agent command, by name or path.")] = ""
    flags: Annotated[
        tuple[str, ...], says("Additional arguments. Each entry is split into words as a shell would.")
    ] = ()
    type: Annotated[
        str | None,
        says(
            "Adapter that parses the agent's output: claude, codex, gemini, opencode, amp, custom or scripted"
            " (null: chosen by the command's name)."
        ),
    ] = None
    prompt_via: Annotated[
        PromptVia | None,
        says(
            "How the agent receives the prompt: stdin, argument (128 KiB or less) or file (the path is passed as"
            " an argument) (null: depends on the type)."
        ),
    ] = None
    permissions: Annotated[
        Permissions | None,
        says(
            "What the agent may do without asking: edit (change files), bypass (everything) or none (only what"
            " its own configuration allows) (null: bypass in a sandbox and for `ralph prd run`, otherwise edit)."
        ),
    ] = None
    env: Annotated[dict[str, str], says("Environment variables for the agent. Values are never shown.")] = {}


class AgentSettings(CommandSettings, frozen=True):
    """The agent that runs in each iteration."""

    fallbacks: Annotated[
        tuple[CommandSettings, ...],
        says("Fallback agents, with the same keys as `agent`, used while the first one is at a usage limit."),
    ] = ()


class GuardrailSettings(_Base, frozen=True):
    """A command that must succeed after every iteration."""

    command: Annotated[
        str,
        Meta(
            min_length=1, description="Command run with `sh -c` after every iteration. It must exit with 0."
        ),
    ]
    fail_action: Annotated[
        FailAction,
        says(
            "What to do with the output of a failure: APPEND or PREPEND it to the next prompt, or REPLACE the"
            " prompt with it."
        ),
    ] = FailAction.APPEND
    hint: Annotated[str, says("Guidance for the agent when the guardrail fails. Never truncated.")] = ""
    timeout_seconds: Annotated[Amount, says("Timeout for the guardrail, in seconds (0: none).")] = 0.0
    clean: Annotated[
        bool,
        says('Run in a fresh copy of the files, without git-ignored files; catches "works on my machine".'),
    ] = False


class ScmSettings(_Base, frozen=True):
    """Version control after an iteration in which all guardrails passed."""

    command: Annotated[str, Meta(min_length=1, description="Version control command, for example git.")]
    tasks: Annotated[
        tuple[str, ...],
        says("Tasks to run in this order, for example commit, push. The agent writes the commit message."),
    ] = ()


class SuperviseSettings(_Base, frozen=True):
    """Restarts and timeouts of `ralph supervise`."""

    max_restarts: Annotated[Count, says("Maximum number of attempts.")] = 100
    restart_delay_seconds: Annotated[Amount, says("Delay between two attempts, in seconds.")] = 1.0
    restart_policy: Annotated[
        RestartKind,
        says(
            "Delay between attempts: backoff (longer after every quick failure, stops in a crash loop) or fixed"
            " (always restartDelaySeconds)."
        ),
    ] = RestartKind.BACKOFF
    agent_timeout_seconds: Annotated[Amount, says("Timeout for one attempt, in seconds (0: none).")] = 0.0
    wait_timeout_seconds: Annotated[
        Amount, says("How long to wait for child processes and runs after DONE, in seconds.")
    ] = 300.0
    poll_interval_seconds: Annotated[
        Amount, says("Polling interval when file watching is unavailable, in seconds.")
    ] = 1.0


class RoleSettings(_Base, frozen=True):
    """One role of `ralph work`. Values in the task take precedence; the role's defaults fill in the rest."""

    enabled: Annotated[bool, says("Whether tasks go through this role (false: skip it).")] = True
    max_iterations: Annotated[
        Count | None,
        says("Maximum iterations before the role fails (null: `ralph.defaultMaxIterations`)."),
    ] = None
    promise: Annotated[
        Word | None, says("Text inside `<promise>` that claims the role is done (null: the role's default).")
    ] = None
    verification: Annotated[
        str | None,
        says("Verification method for the role's promise (null: `ralph.defaultVerification`)."),
    ] = None
    agent: Annotated[
        str | CommandSettings | None,
        says("Agent for this role, as a command or with the keys of `agent` (null: `agent`)."),
    ] = None
    model: Annotated[Word | None, says("Model for this role's agent (null: the agent's default).")] = None


class RolesSettings(_Base, frozen=True):
    """The roles, in order."""

    coder: RoleSettings = RoleSettings()
    reviewer: RoleSettings = RoleSettings()
    tester: RoleSettings = RoleSettings()
    qa: RoleSettings = RoleSettings()


class JudgeSettings(_Base, frozen=True):
    """The agent that judges in semantic verification whether criteria are met."""

    agent: Annotated[
        str | CommandSettings | None,
        says("Agent for the judge, as a command or with the keys of `agent` (null: the role's agent)."),
    ] = None
    model: Annotated[Word | None, says("Model for the judge (null: a small model of that agent).")] = None


class WorkSettings(_Base, frozen=True):
    """How `ralph work` takes tasks through their roles."""

    enabled: Annotated[bool, says("Run each role as a loop (false: one verified pass per role instead).")] = (
        True
    )
    default_max_iterations: Annotated[
        Count | None,
        says(
            "Maximum iterations for roles without their own limit (null: coder 15, reviewer 5, tester 10, qa 5)."
        ),
    ] = None
    default_verification: Annotated[
        str | None,
        says(
            "Verification method for roles without their own (null: depends on the role; by default, a judge"
            " checks the acceptance criteria)."
        ),
    ] = None
    agents: RolesSettings = RolesSettings()
    judge: JudgeSettings = JudgeSettings()
    allow_degraded: Annotated[
        bool,
        says(
            "Accept a promise when the judge is unavailable, instead of stopping. The outcome is marked as degraded."
        ),
    ] = False
    protect: Annotated[
        bool | tuple[Word, ...] | None,
        says("The same as `protect` at the top level. Set one of the two, or both to the same value."),
    ] = None
    setup: Annotated[
        str,
        says(
            "Command run with `sh -c` in every new worktree and clean copy, for example `npm ci` or"
            " `git submodule update --init`. It runs again when it changes."
        ),
    ] = ""
    max_per_agent: Annotated[
        dict[str, Count], says("Maximum number of simultaneous runs of an agent, by agent command.")
    ] = {}
    max_task_cost_usd: Annotated[
        Amount,
        says("Cost limit for one task in USD; the task fails when it is reached (0: no limit)."),
    ] = 0.0


class NotifySettings(_Base, frozen=True):
    """Notifications when a run finishes, fails, waits or nears its budget."""

    urls: Annotated[
        tuple[str, ...],
        says("Notification targets as apprise URLs. They are secrets: keep them in settings.local.json."),
    ] = ()
    command: Annotated[
        str,
        says(
            "Command run with `sh -c` for each notification. It gets RALPH_EVENT, RALPH_MESSAGE and more in its"
            " environment, and JSON on stdin."
        ),
    ] = ""
    on: Annotated[
        tuple[Occasion, ...],
        says("Events to notify about: finished, failed, waiting, limit, budget (80 % used)."),
    ] = tuple(Occasion)


class GuardRuleSettings(_Base, frozen=True):
    """A custom rule for the guard."""

    pattern: Annotated[
        Word,
        says("Glob that matches one command as it would be executed, for example `terraform apply *`."),
    ]
    reason: Annotated[Word, says("Reason for the rule. For `deny`, the agent sees it.")]


class GuardSettings(_Base, frozen=True):
    """Commands that are blocked before an agent's shell runs them."""

    enabled: Annotated[bool, says("Block destructive commands (false: block nothing).")] = True
    allow: Annotated[
        tuple[GuardRuleSettings, ...], says("Commands that are always allowed, whatever the rules say.")
    ] = ()
    deny: Annotated[tuple[GuardRuleSettings, ...], says("Additional commands to deny.")] = ()


class SandboxSettings(_Base, frozen=True):
    """Where agents and checks run. Paths may start with `~`; relative paths start at the project."""

    backend: Annotated[
        str | None,
        says(
            "Where agents and checks run: docker-sandbox, bubblewrap, container, direct (no sandbox) or auto"
            " (the best one available) (null: auto for `ralph prd run`, otherwise direct)."
        ),
    ] = field(default=None, name="rung")
    image: Annotated[
        str,
        says("Image for containers. A run never pulls it (empty: Docker's image for Claude Code)."),
    ] = ""
    network: Annotated[
        Network,
        says(
            "Network access: open (everything), off, or allow-list (the agent's provider and `allowedHosts`)."
        ),
    ] = Network.OPEN
    allowed_hosts: Annotated[
        tuple[Word, ...],
        says(
            "Hosts allowed with `network: allow-list` besides the agent's provider: NAME, *.NAME or NAME:PORT."
        ),
    ] = ()
    writable: Annotated[
        tuple[Word, ...], says("Writable paths besides the worktree, for example ~/.npm.")
    ] = ()
    read_only: Annotated[tuple[Word, ...], says("Paths that stay readable inside hidden directories.")] = ()
    hidden: Annotated[tuple[Word, ...], says("Additional hidden paths, for example /srv.")] = ()
    variables: Annotated[
        tuple[Word, ...],
        says(
            "Environment variables to pass besides the usual ones and the agent's keys. A trailing * matches any"
            " suffix, for example AWS_*."
        ),
    ] = ()
    memory_mb: Annotated[Natural, says("Maximum memory of one process, in MB (0: no limit).")] = 0
    processes: Annotated[
        Natural,
        says("Maximum number of processes. No effect for root with bubblewrap (0: no limit)."),
    ] = 0


class Settings(_Base, frozen=True):
    """The contents of `.ralph/settings.json`."""

    maximum_iterations: Annotated[
        Count, says("Maximum number of iterations. The run then stops with exit code 1.")
    ] = 10
    completion_response: Annotated[
        str,
        Meta(
            min_length=1,
            description="Text that the agent prints inside `<response>…</response>` when it is done.",
        ),
    ] = "DONE"
    output_truncate_chars: Annotated[
        Natural,
        says(
            "Maximum output of a failed guardrail in the next prompt, in characters (0: no limit). Of longer"
            " output, the prompt has the start, the end, and lines from between that name a failure."
        ),
    ] = 5000
    stream_agent_output: Annotated[bool, says("Show agent output live.")] = True
    include_iteration_count_in_prompt: Annotated[
        bool, says("Start each prompt with `Iteration X of Y, Z remaining.`")
    ] = False
    include_completion_instruction: Annotated[
        bool,
        says("Add a line that explains the `<response>` tag to the prompt, unless the prompt has the tag."),
    ] = True
    agent: Annotated[AgentSettings, says("The agent to run: command, flags, permissions and fallbacks.")] = (
        AgentSettings()
    )
    guardrails: Annotated[
        tuple[GuardrailSettings, ...],
        says("Commands that must succeed after every iteration. Their failures go into the next prompt."),
    ] = ()
    protect: Annotated[
        bool | tuple[Word, ...] | None,
        says(
            "Globs of protected tests; false: none (null: the tests that the checks execute). `ralph run` is complete"
            " only if the work also passes them as they were when the run started; in `ralph work`, only the tester"
            " may change them."
        ),
    ] = None
    scm: Annotated[
        ScmSettings | None,
        says("Version control after an iteration in which all guardrails passed (null: none)."),
    ] = None
    iteration_timeout_seconds: Annotated[
        Amount, says("Timeout for one iteration's agent, in seconds (0: none).")
    ] = 0.0
    idle_timeout_seconds: Annotated[
        Amount | None,
        says(
            "Timeout for an agent that prints nothing, in seconds (0: none; null: 900 for agents with structured"
            " output, otherwise none)."
        ),
    ] = None
    exit_grace_seconds: Annotated[
        Amount,
        says("How long an agent may keep running after its final result before it is stopped, in seconds."),
    ] = 30.0
    max_limit_wait_seconds: Annotated[
        Amount,
        says(
            "Maximum wait for a usage limit to reset, in seconds. With a later reset, the run stops with exit"
            " code 3."
        ),
    ] = 21600.0
    max_cost_usd: Annotated[
        Amount,
        says(
            "Total cost limit in USD (0: no limit). The agent is stopped when the limit is reached, and no"
            " iteration starts that would exceed it at the average cost."
        ),
    ] = 0.0
    max_tokens: Annotated[
        Natural,
        says(
            "Total token limit (0: no limit). The agent is stopped when the limit is reached, and no iteration"
            " starts that would exceed it at the average use."
        ),
    ] = 0
    max_duration_seconds: Annotated[Amount, says("Total time limit, in seconds (0: no limit).")] = 0.0
    stagnation_limit: Annotated[
        Natural, says("Stop after this many iterations in a row without a change (0: never).")
    ] = 0
    snapshots: Annotated[
        bool,
        says("Save a snapshot of the files before every iteration, for `ralph diff` and `ralph rewind`."),
    ] = True
    guard: GuardSettings = GuardSettings()
    sandbox: SandboxSettings = SandboxSettings()
    supervise: SuperviseSettings = SuperviseSettings()
    ralph: WorkSettings = WorkSettings()
    notify: NotifySettings = NotifySettings()
    use_emoji: Annotated[
        bool | None,
        says(
            "Show emoji in agent output instead of text markers (null: on terminals that can display them)."
        ),
    ] = None
    use_color: Annotated[
        bool | None, says("Colour the output (null: on a terminal, unless NO_COLOR is set).")
    ] = None
    theme: Annotated[
        Literal["dark", "light"] | None,
        says("Colours of `ralph tui`: dark or light (null: detected from the terminal, otherwise dark)."),
    ] = None
    show_timestamp: Annotated[bool, says("Start each line of agent output with [HH:MM:SS].")] = False
    max_output_lines: Annotated[Natural, says("Maximum lines shown of a tool's output (0: no limit).")] = 5
    max_output_chars: Annotated[
        Natural, says("Maximum characters shown of a tool's output (0: no limit).")
    ] = 2000

    @property
    def protected(self) -> tuple[str, ...] | None:
        """Globs of protected tests; None: the files that the checks execute."""
        given = self.ralph.protect if self.protect is None else self.protect
        if isinstance(given, bool):
            return None if given else ()
        return given


class LoadedSettings(Struct, frozen=True):
    """The merged settings, the files they came from, and the source of each value by its path."""

    settings: Settings
    files: tuple[Path, ...]
    sources: Mapping[str, str]


def load(
    path: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    agent: str | None = None,
    otherwise: str = "",
) -> LoadedSettings:
    """Load the settings file, merge the local file next to it, then the flags by their dotted keys.

    `agent` is a command that replaces the whole configured agent. `otherwise` is the command to use if no agent is
    configured.
    """
    chosen = path or DEFAULT_PATH
    if not chosen.name:
        raise RalphError(f"{chosen}: the settings file is not a regular file.")
    local = chosen.with_name(f"{chosen.stem}.local{chosen.suffix}")
    documents = [
        _read(file) for file in (chosen, local) if file.exists() or file.is_symlink() or (file == path)
    ]
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for document in documents:
        _check(document)
        merged = deep_merge(merged, document.values)
        _note_sources(sources, document.values, str(document.path))
    flags = {**(flags or {}), **_other_agent(merged, agent, otherwise)}
    for key, value in flags.items():
        if key == "agent":
            merged.pop("agent", None)
        nested: Any = value
        for part in reversed(key.split(".")):
            nested = {part: nested}
        merged = deep_merge(merged, nested)
        _note_sources(sources, nested, "flag")
    try:
        settings = msgspec.convert(merged, Settings)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        where = where.strip(".`")
        names = ", ".join(str(document.path) for document in documents)
        source = "the command line" if where in flags else names or "the command line"
        raise RalphError(f"{where}, from {source}: {_plain(message)}.") from None
    _check_protect(settings)
    return LoadedSettings(
        settings, tuple(document.path for document in documents), _all_sources(settings, sources)
    )


def _check_protect(settings: Settings) -> None:
    if None not in (settings.protect, settings.ralph.protect) and settings.protect != settings.ralph.protect:
        raise RalphError(
            "protect and ralph.protect are both set, to different values.", "Remove ralph.protect."
        )


def _other_agent(merged: Mapping[str, Any], agent: str | None, otherwise: str) -> dict[str, Any]:
    """Return the flag for an agent that replaces the configured one, if there is one."""
    block = merged.get("agent")
    configured = block.get("command") if isinstance(block, dict) else None
    if agent is None and not str(configured or "").strip():
        agent = otherwise or None
    if agent is None or agent == configured:
        return {}
    try:
        name, *words = shlex.split(agent) or [""]
    except ValueError as error:
        raise RalphError(f"--agent {agent!r}: {error}.", "Quote it as you would in a shell.") from None
    return {"agent": {"command": name, "flags": [shlex.quote(word) for word in words]}}


def deep_merge(base: dict[str, Any], local: dict[str, Any]) -> dict[str, Any]:
    """Merge objects key by key; scalars and arrays in `local` replace those in `base`."""
    merged = dict(base)
    for key, value in local.items():
        old = merged.get(key)
        merged[key] = deep_merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def to_json(settings: Settings) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(settings)
    return values


def redacted(settings: Settings) -> Settings:
    """Return the settings without the agents' variables and the notification URLs, which may be secrets."""
    hidden: Settings = msgspec.convert(_without_secrets(to_json(settings)), Settings)
    urls = tuple(map(redacted_url, settings.notify.urls))
    return msgspec.structs.replace(hidden, notify=msgspec.structs.replace(hidden.notify, urls=urls))


def redacted_url(url: str) -> str:
    """Return a notification URL with everything but its service redacted."""
    scheme, found, _ = url.partition("://")
    return f"{scheme}://{SECRET}" if found and scheme.isalnum() else SECRET


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: dict.fromkeys(each, SECRET) if key == "env" else _without_secrets(each)
            for key, each in value.items()
        }
    return [_without_secrets(each) for each in value] if isinstance(value, list | tuple) else value


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a settings file. A file may name its schema in `$schema`, for editors."""
    found = msgspec.json.schema(Settings)
    found["$defs"]["Settings"]["properties"]["$schema"] = {"type": "string"}
    return found


# ---- one file ----


def _read(path: Path) -> JsonDocument:
    document = read_object(path, MAX_BYTES, "settings file")
    document.values.pop("$schema", None)
    return document


def _check(document: JsonDocument) -> None:
    """Check that a file is valid by itself; an error names the file, the line and the key."""
    for keys, value in scalars(document.values):
        if problem := _problem(keys, value):
            raise RalphError(*_explain(document, problem, keys)) from None
    try:
        msgspec.convert(_tolerant(document.values), Settings)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        keys = re.findall(r"\.?([^.\[\]`]+)", where.rstrip("`"))
        raise RalphError(*_explain(document, message, keys)) from None


def _problem(keys: list[str], value: Any) -> str:
    """Return why a value cannot be passed to a program although it is valid JSON, or ""."""
    if isinstance(value, float) and not math.isfinite(value):
        return "the number is too large"
    if isinstance(value, str) and "\0" in value:
        return "must not contain a NUL character"
    if isinstance(value, str) and not is_text(value):
        return "not valid text (lone surrogate)"
    if len(keys) > 2 and keys[-2] == "env":
        if "=" in keys[-1] or not keys[-1]:
            return "not a valid variable name"
        return "" if isinstance(value, str) else "must be a string"
    return ""


def _tolerant(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in required keys that a local file may leave out because the main file has them."""
    if isinstance(values.get("scm"), dict):
        return values | {"scm": {"command": "git"} | values["scm"]}
    return values


def _explain(document: JsonDocument, message: str, keys: list[str]) -> tuple[str, str]:
    unknown = re.match(r"Object contains unknown field `(.*)`", message)
    if unknown:
        key = unknown[1]
        known = _known_keys(keys)
        import difflib  # only a wrong key needs it

        close = difflib.get_close_matches(key, known, 1, 0.5)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known keys: {', '.join(known)}."
        keys = [*keys, key]
        return f"{document.path}:{document.line_of(keys)}: unknown key {dotted(keys)!r}.", hint
    return f"{document.path}:{document.line_of(keys)}: {dotted(keys)}: {_plain(message)}.", _hint(keys)


_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
}


def _plain(message: str) -> str:
    """Rewrite a validation message of msgspec in plain words."""
    if match := re.fullmatch(r"Expected `(?:int|float)[^`]*` >= ([\d.]+)", message):
        return f"must be {float(match[1]):g} or more"
    if re.fullmatch(r"Expected `str[^`]*` of length >= 1", message):
        return "must not be empty"
    if match := re.fullmatch(r"Expected `([^`]+)`, got `(\w+)`", message):
        expected = " or ".join(_TYPES.get(name, name) for name in match[1].split(" | "))
        return f"must be {expected}, not {_GOT.get(match[2]) or _TYPES.get(match[2], match[2])}"
    if match := re.fullmatch(r"Object missing required field `(.+)`", message):
        return f"missing key {match[1]!r}"
    if match := re.fullmatch(r"Invalid enum value (.+)", message):
        return f"unknown value {match[1]}"
    return message[0].lower() + message[1:]


_GOT = {"int": "a number", "float": "a fraction", "bool": "a boolean"}


def _hint(keys: list[str]) -> str:
    return f"For valid values of {dotted(keys)!r}, run: ralph config --schema" if keys else ""


def _known_keys(keys: list[str]) -> list[str]:
    structs: dict[str, type[_Base]] = {
        "fallbacks": CommandSettings,
        "agent": AgentSettings,
        "guardrails": GuardrailSettings,
        "scm": ScmSettings,
        "allow": GuardRuleSettings,
        "deny": GuardRuleSettings,
        "guard": GuardSettings,
        "sandbox": SandboxSettings,
        "supervise": SuperviseSettings,
        "coder": RoleSettings,
        "reviewer": RoleSettings,
        "tester": RoleSettings,
        "qa": RoleSettings,
        "judge": JudgeSettings,
        "agents": RolesSettings,
        "ralph": WorkSettings,
        "notify": NotifySettings,
    }
    struct = next((struct for key, struct in structs.items() if key in keys), Settings)
    return [field.encode_name for field in msgspec.structs.fields(struct)]


# ---- where values came from ----


def _note_sources(sources: dict[str, str], values: dict[str, Any], source: str) -> None:
    for path, _ in _leaves(values):
        sources[path] = source


def _all_sources(settings: Settings, sources: dict[str, str]) -> dict[str, str]:
    return {path: sources.get(path, DEFAULT) for path, _ in _leaves(to_json(settings))}


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with its dotted path; an array or an empty object is one value."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def leaves(loaded: LoadedSettings) -> Iterator[tuple[str, Any, str]]:
    """Yield every key with its redacted value and its source, in the order of the settings."""
    for path, value in _leaves(to_json(redacted(loaded.settings))):
        yield path, value, loaded.sources[path]
