"""Settings: the file, the local file beside it, flags on top, and where each value came from."""

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
    """What stands beside a key in the schema."""
    return Meta(description=description)


class _Base(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=False):
    pass


class CommandSettings(_Base, frozen=True):
    """One agent command."""

    command: Annotated[str, says("The agent's command, by name or path.")] = ""
    flags: Annotated[tuple[str, ...], says("Further arguments; each entry is split as a shell would.")] = ()
    type: Annotated[
        str | None, says("Which adapter reads its output; by default its command's base name.")
    ] = None
    prompt_via: Annotated[PromptVia | None, says("How it gets the prompt: stdin, argument or file.")] = None
    permissions: Annotated[
        Permissions | None,
        says(
            "What it may do unasked: edit (files), bypass (everything), none (as it likes);"
            " null: bypass in a sandbox and for `ralph prd run`, else edit."
        ),
    ] = None
    env: Annotated[dict[str, str], says("Environment variables for the agent.")] = {}


class AgentSettings(CommandSettings, frozen=True):
    """The agent that is run again and again."""

    fallbacks: Annotated[
        tuple[CommandSettings, ...], says("Further agents, used while the first is limited.")
    ] = ()


class GuardrailSettings(_Base, frozen=True):
    """A command that must succeed after every iteration."""

    command: Annotated[str, Meta(min_length=1, description="Run by `sh -c` after every iteration.")]
    fail_action: Annotated[
        FailAction, says("What its failure does to the next prompt: APPEND, PREPEND, REPLACE.")
    ] = FailAction.APPEND
    hint: Annotated[str, says("Guidance for the agent when it fails.")] = ""
    timeout_seconds: Annotated[Amount, says("It is ended after so long. 0: never.")] = 0.0
    clean: Annotated[bool, says("Run it in a fresh copy of the files, without those that git ignores.")] = (
        False
    )


class ScmSettings(_Base, frozen=True):
    """Version control after an iteration with green guardrails."""

    command: Annotated[str, Meta(min_length=1, description="The command, for example git.")]
    tasks: Annotated[tuple[str, ...], says("Its tasks in order, for example commit, push.")] = ()


class SuperviseSettings(_Base, frozen=True):
    """How `ralph supervise` restarts an agent."""

    max_restarts: Annotated[Count, says("Attempts before it stops.")] = 100
    restart_delay_seconds: Annotated[Amount, says("Between two attempts.")] = 1.0
    restart_policy: Annotated[
        RestartKind, says("backoff: longer after every quick failure; fixed: always the delay.")
    ] = RestartKind.BACKOFF
    agent_timeout_seconds: Annotated[Amount, says("An attempt is ended after so long. 0: never.")] = 0.0
    wait_timeout_seconds: Annotated[Amount, says("How long to wait for children after DONE.")] = 300.0
    poll_interval_seconds: Annotated[Amount, says("How often to look where nothing tells of changes.")] = 1.0


class RoleSettings(_Base, frozen=True):
    """One role of `ralph work`. What is left out: as the task says, else as the role's defaults."""

    enabled: Annotated[bool, says("false: tasks skip this role.")] = True
    max_iterations: Annotated[Count | None, says("Iterations before the role fails.")] = None
    promise: Annotated[Word | None, says("What it says inside <promise>.")] = None
    verification: Annotated[str | None, says("How its promise is verified.")] = None
    agent: Annotated[str | CommandSettings | None, says("Another agent for this role, as in `agent`.")] = None
    model: Annotated[Word | None, says("The model of its agent.")] = None


class RolesSettings(_Base, frozen=True):
    """The roles, in their order."""

    coder: RoleSettings = RoleSettings()
    reviewer: RoleSettings = RoleSettings()
    tester: RoleSettings = RoleSettings()
    qa: RoleSettings = RoleSettings()


class JudgeSettings(_Base, frozen=True):
    """Who is asked by semantic verification whether criteria are met."""

    agent: Annotated[str | CommandSettings | None, says("The judge's agent; null: the one of the role.")] = (
        None
    )
    model: Annotated[Word | None, says("Its model; null: a small one of that agent.")] = None


class WorkSettings(_Base, frozen=True):
    """How `ralph work` takes tasks through their roles."""

    enabled: Annotated[bool, says("false: one verified pass per role instead of a loop.")] = True
    default_max_iterations: Annotated[
        Count | None, says("For roles that do not say; null: 15, 5, 10 and 5.")
    ] = None
    default_verification: Annotated[
        str | None, says("For roles that do not say; null: as suits the role.")
    ] = None
    agents: RolesSettings = RolesSettings()
    judge: JudgeSettings = JudgeSettings()
    allow_degraded: Annotated[
        bool, says("Believe a promise when the judge could not be asked; the outcome says so.")
    ] = False
    protect: Annotated[
        tuple[str, ...] | None,
        says("Globs of files that only the tester may change; null: what verification runs."),
    ] = None
    setup: Annotated[str, says("Run by `sh -c` in every new worktree, for example `npm ci`.")] = ""
    max_per_agent: Annotated[
        dict[str, Count], says("How many runs of an agent there may be at once, by its command.")
    ] = {}
    max_task_cost_usd: Annotated[Amount, says("Fail a task when it has cost so much. 0: no limit.")] = 0.0


class NotifySettings(_Base, frozen=True):
    """Who is told when a run ends, waits, or nears its budget."""

    urls: Annotated[
        tuple[str, ...], says("Addresses as apprise knows them; secrets, best kept in settings.local.json.")
    ] = ()
    command: Annotated[
        str, says("Run by `sh -c`: RALPH_EVENT, RALPH_MESSAGE … in its environment, JSON on stdin.")
    ] = ""
    on: Annotated[tuple[Occasion, ...], says("When: finished, failed, waiting, limit, budget (at 80 %).")] = (
        tuple(Occasion)
    )


class GuardRuleSettings(_Base, frozen=True):
    """A rule of one's own for the command guard."""

    pattern: Annotated[Word, says("A glob on one command as it would run, for example `terraform apply *`.")]
    reason: Annotated[Word, says("Why; for a denial, what the agent is told.")]


class GuardSettings(_Base, frozen=True):
    """What is stopped before an agent's shell runs it."""

    enabled: Annotated[bool, says("false: nothing is stopped.")] = True
    allow: Annotated[
        tuple[GuardRuleSettings, ...], says("Commands that are allowed whatever the rules say.")
    ] = ()
    deny: Annotated[tuple[GuardRuleSettings, ...], says("Further commands that are denied.")] = ()


class SandboxSettings(_Base, frozen=True):
    """Where agents and checks run. Paths may begin with `~`; others are seen from the project."""

    backend: Annotated[
        str | None,
        says(
            "docker-sandbox, bubblewrap, container or direct, or auto: the best that works here;"
            " null: auto for `ralph prd run`, else direct."
        ),
    ] = field(default=None, name="rung")
    image: Annotated[
        str,
        says("The image of containers, which is never pulled by a run; empty: Docker's for Claude Code."),
    ] = ""
    network: Annotated[Network, says("What can be reached: open (everything), off, allow-list.")] = (
        Network.OPEN
    )
    allowed_hosts: Annotated[
        tuple[Word, ...], says("With allow-list, beside the agent's own: NAME, *.NAME, or NAME:PORT.")
    ] = ()
    writable: Annotated[
        tuple[Word, ...], says("What can be written beside the worktree, for example ~/.npm.")
    ] = ()
    read_only: Annotated[tuple[Word, ...], says("What can be read though it is in a hidden place.")] = ()
    hidden: Annotated[tuple[Word, ...], says("What cannot be seen, for example /srv.")] = ()
    variables: Annotated[
        tuple[Word, ...], says("Variables to pass, with * for any end, for example AWS_*.")
    ] = ()
    memory_mb: Annotated[Natural, says("Most data of one process, in MB. 0: no limit.")] = 0
    processes: Annotated[Natural, says("Most processes; not for root. 0: no limit.")] = 0


class Settings(_Base, frozen=True):
    """Everything that `.ralph/settings.json` may say."""

    maximum_iterations: Annotated[Count, says("Iterations before the run stops.")] = 10
    completion_response: Annotated[
        str, Meta(min_length=1, description="What the agent says inside <response> when all is done.")
    ] = "DONE"
    output_truncate_chars: Annotated[
        Natural, says("How much guardrail output the agent is shown. 0: all.")
    ] = 5000
    stream_agent_output: Annotated[bool, says("Show what the agent prints as it works.")] = True
    include_iteration_count_in_prompt: Annotated[
        bool, says("Begin the prompt with `Iteration X of Y, Z remaining.`")
    ] = False
    include_completion_instruction: Annotated[
        bool, says("Tell the agent the tag, unless the prompt already has it.")
    ] = True
    agent: AgentSettings = AgentSettings()
    guardrails: tuple[GuardrailSettings, ...] = ()
    scm: ScmSettings | None = None
    iteration_timeout_seconds: Annotated[
        Amount, says("An iteration's agent is ended after so long. 0: never.")
    ] = 0.0
    idle_timeout_seconds: Annotated[
        Amount | None, says("Ended after such a silence. 0: never; null: as its type needs.")
    ] = None
    exit_grace_seconds: Annotated[
        Amount, says("An agent that gave its result but stays is ended after so long.")
    ] = 30.0
    max_limit_wait_seconds: Annotated[
        Amount, says("How long to wait for a usage limit to reset before the run stops.")
    ] = 21600.0
    max_cost_usd: Annotated[Amount, says("Stop when the agents have cost so much. 0: no limit.")] = 0.0
    max_tokens: Annotated[Natural, says("Stop when so many tokens are used. 0: no limit.")] = 0
    max_duration_seconds: Annotated[Amount, says("Stop after so long. 0: no limit.")] = 0.0
    stagnation_limit: Annotated[
        Natural, says("Stop when so many iterations in a row changed nothing. 0: never.")
    ] = 0
    snapshots: Annotated[bool, says("Keep the tree as it is before every iteration.")] = True
    guard: GuardSettings = GuardSettings()
    sandbox: SandboxSettings = SandboxSettings()
    supervise: SuperviseSettings = SuperviseSettings()
    ralph: WorkSettings = WorkSettings()
    notify: NotifySettings = NotifySettings()
    use_emoji: Annotated[
        bool | None, says("Emoji in the agent's output; null: on a terminal that can show them.")
    ] = None
    use_color: Annotated[bool | None, says("Colours; null: on a terminal, unless NO_COLOR is set.")] = None
    theme: Annotated[
        Literal["dark", "light"] | None,
        says("Colours of `ralph tui`: dark or light; null: as the terminal says, else dark."),
    ] = None
    show_timestamp: Annotated[bool, says("Begin the agent's lines with [HH:MM:SS].")] = False
    max_output_lines: Annotated[Natural, says("How many lines of a tool's output are shown. 0: all.")] = 5
    max_output_chars: Annotated[
        Natural, says("How many characters of a tool's output are shown. 0: all.")
    ] = 2000


class LoadedSettings(Struct, frozen=True):
    """The merged settings, which files they came from, and the source of each value by its path."""

    settings: Settings
    files: tuple[Path, ...]
    sources: Mapping[str, str]


def load(
    path: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    agent: str | None = None,
    otherwise: str = "",
) -> LoadedSettings:
    """Settings file, deep-merged with the local file beside it, then flags by their dotted key.

    `agent`: another command than the configured one, of which then nothing is kept; `otherwise`: the one if none is
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
        raise RalphError(f"{where}, from {source}: {message[0].lower()}{message[1:]}.") from None
    return LoadedSettings(
        settings, tuple(document.path for document in documents), _all_sources(settings, sources)
    )


def _other_agent(merged: Mapping[str, Any], agent: str | None, otherwise: str) -> dict[str, Any]:
    """The flag for an agent that takes the place of the configured one."""
    block = merged.get("agent")
    configured = block.get("command") if isinstance(block, dict) else None
    if agent is None and not str(configured or "").strip():
        agent = otherwise or None
    if agent is None or agent == configured:
        return {}
    try:
        name, *words = shlex.split(agent) or [""]
    except ValueError as error:
        raise RalphError(f"--agent {agent!r}: {error}.", "It is split as a shell would split it.") from None
    return {"agent": {"command": name, "flags": [shlex.quote(word) for word in words]}}


def deep_merge(base: dict[str, Any], local: dict[str, Any]) -> dict[str, Any]:
    """Objects are merged key by key; scalars and arrays of `local` replace those of `base`."""
    merged = dict(base)
    for key, value in local.items():
        old = merged.get(key)
        merged[key] = deep_merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def to_json(settings: Settings) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(settings)
    return values


def redacted(settings: Settings) -> Settings:
    """The same without the values of the agents' variables and the addresses of people: they may be secrets."""
    hidden: Settings = msgspec.convert(_without_secrets(to_json(settings)), Settings)
    urls = tuple(map(redacted_url, settings.notify.urls))
    return msgspec.structs.replace(hidden, notify=msgspec.structs.replace(hidden.notify, urls=urls))


def redacted_url(url: str) -> str:
    """What may be shown of an address: which service it is for."""
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
    """The JSON Schema of a settings file, which may name its schema for editors."""
    found = msgspec.json.schema(Settings)
    found["$defs"]["Settings"]["properties"]["$schema"] = {"type": "string"}
    return found


# ---- one file ----


def _read(path: Path) -> JsonDocument:
    document = read_object(path, MAX_BYTES, "settings file")
    document.values.pop("$schema", None)
    return document


def _check(document: JsonDocument) -> None:
    """Each file is valid by itself; an error names the file, the line and the key."""
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
    """What no program could be given, though it is valid JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return "the number is too large"
    if isinstance(value, str) and "\0" in value:
        return "it has a NUL character"
    if isinstance(value, str) and not is_text(value):
        return "it is not valid text (a lone surrogate)"
    if len(keys) > 2 and keys[-2] == "env":
        if "=" in keys[-1] or not keys[-1]:
            return "it is no name of a variable"
        return "" if isinstance(value, str) else "expected `str`"
    return ""


def _tolerant(values: dict[str, Any]) -> dict[str, Any]:
    """A local file may leave out what the other one says: fill in required keys of partial objects."""
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
    message = message[0].lower() + message[1:]
    return f"{document.path}:{document.line_of(keys)}: {dotted(keys)}: {message}.", _hint(keys)


def _hint(keys: list[str]) -> str:
    return f"`ralph config --schema` describes {dotted(keys)!r}." if keys else ""


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
    """Every value by its dotted path; an array is one value, and so is an empty object."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def leaves(loaded: LoadedSettings) -> Iterator[tuple[str, Any, str]]:
    """Every key with its value, redacted, and its source, in the order of the settings."""
    for path, value in _leaves(to_json(redacted(loaded.settings))):
        yield path, value, loaded.sources[path]
