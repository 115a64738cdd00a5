"""Check the configured agents and the other agents that Ralph supports."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from ralph.agents.base import About
from ralph.agents.registry import AGENTS
from ralph.core.model import AgentSpec
from ralph.doctor.finding import ABSENT, ERROR, OK, WARNING, Finding
from ralph.doctor.installed import Installed, Interview, harmless, inspect, look_up, version_in
from ralph.errors import RalphError
from ralph.process.client import Wakeup, child_environment
from ralph.runs.run_plan import agent_specs
from ralph.settings import AgentSettings, Settings


def agent_findings(settings: Settings, wakeup: Wakeup, seconds: float, *, is_known: bool) -> list[Finding]:
    """Check the configured agent, its fallbacks and the other supported agents, all in parallel."""
    specs, problem = _configured(settings.agent)
    types = {spec.type for spec in specs}
    others = [
        agent_specs(AgentSettings(command=name), None)[0]
        for name, agent in AGENTS.items()
        if agent.about is not None and name not in types
    ]
    with ThreadPoolExecutor(max_workers=4) as pool:
        found = list(pool.map(lambda spec: inspect(spec, wakeup, seconds), (*specs, *others)))
    configured, rest = found[: len(specs)], found[len(specs) :]
    findings = [
        _configured_agent(spec, each, "fallback" if number else "agent")
        for number, (spec, each) in enumerate(zip(specs, configured, strict=True))
    ]
    findings += [_other_agent(spec, each) for spec, each in zip(others, rest, strict=True)]
    if is_known and problem:
        usable = [spec.name for spec, each in zip(others, rest, strict=True) if not each.problem]
        findings.insert(0, _no_agent(problem, settings.agent, usable))
    if any(each.is_node_script for each in found):
        findings.append(_node(found, wakeup, seconds))
    return findings


def _configured(agent: AgentSettings) -> tuple[tuple[AgentSpec, ...], RalphError | None]:
    try:
        return agent_specs(agent, None), None
    except RalphError as error:
        return (), error


def _no_agent(problem: RalphError, agent: AgentSettings, usable: Sequence[str]) -> Finding:
    if agent.command.strip():
        return Finding("agent", ERROR, problem.message, problem.hint)
    advice = "Install one of the agents below, then run `ralph init`."
    if usable:
        advice = f"Run `ralph init`, or name one: ralph run --agent {usable[0]}"
    return Finding("agent", ERROR, "no agent configured", advice)


def _configured_agent(spec: AgentSpec, found: Installed, role: str) -> Finding:
    about = AGENTS[spec.type].about
    name = f"{role} {spec.name}"
    if found.problem:
        state = ERROR if role == "agent" else WARNING
        where = f" ({found.program})" if found.program and found.program != spec.command else ""
        return Finding(name, state, f"{found.problem}{where}", _fix(spec, found, role))
    if about is None:
        return Finding(name, OK, found.program)
    return _described(name, spec.command, about, found)


def _fix(spec: AgentSpec, found: Installed, role: str) -> str:
    about = AGENTS[spec.type].about
    key = "agent.command" if role == "agent" else "agent.fallbacks"
    if not found.program:
        return f"Install {about.title if about else spec.command}, or set its full path in {key}."
    if not os.path.exists(found.program):
        return f"Correct the path in {key}."
    if not os.access(found.program, os.X_OK):
        return f"Make it executable: chmod +x {shlex.quote(found.program)}"
    return f"Run `{spec.command} --version` to see the problem, or set another command in {key}."


def _other_agent(spec: AgentSpec, found: Installed) -> Finding:
    about = AGENTS[spec.type].about
    assert about is not None
    if not found.program:
        return Finding(spec.name, ABSENT, f"{about.title} is not on PATH")
    if found.problem:
        advice = f"Not configured here. To use it, run `{spec.name} --version` and fix the problem."
        return Finding(spec.name, WARNING, f"{found.problem} ({found.program})", advice)
    return _described(spec.name, spec.command, about, found)


def _described(name: str, command: str, about: About, found: Installed) -> Finding:
    """Describe a working program: its version, its compatibility with Ralph, its login status."""
    facts = [f"{about.title} {found.version or '(unknown version)'} at {found.program}"]
    advice = []
    tried, is_fit = _tried(about, found.version)
    facts.append(tried)
    if not found.version:
        advice.append(f"Run `{command} --version` to see its version.")
    elif not is_fit and about.seen:
        advice.append(f"Update it to {about.seen} or later.")
    if found.unknown:
        facts.append(f"its help does not list {', '.join(found.unknown)}")
        advice.append("Update the agent or Ralph: a run might fail with an unknown option.")
    elif found.unread:
        facts.append(f"flags not checked: {found.unread}")
        advice.append(f"Run `{command} {' '.join(about.help)}` to see the problem.")
    else:
        facts.append("supports all flags that Ralph uses")
    if found.login:
        facts.append(f"probably logged in ({found.login})")
    else:
        facts.append("login status unknown")
        advice.append(_log_in(about))
    is_fine = is_fit and found.login and not found.unknown and not found.unread
    return Finding(name, OK if is_fine else WARNING, "; ".join(facts), " ".join(advice))


def _tried(about: About, version: str) -> tuple[str, bool]:
    """Compare a version with the one that Ralph was tested with; return the result, and whether it is good enough."""
    if not about.seen:
        return "not tested with Ralph", False
    if not version:
        return f"Ralph was tested with {about.seen}", False
    ours, theirs = _numbers(about.seen), _numbers(version)
    if ours == theirs:
        return "tested with Ralph", True
    word = "newer" if theirs > ours else "older"
    return f"{word} than {about.seen}, the version tested with Ralph", theirs > ours


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(number) for number in re.findall(r"\d+", re.split("[-+]", version)[0])]
    return tuple(numbers + [0] * (4 - len(numbers)))


def _log_in(about: About) -> str:
    ways = [about.login] * bool(about.login) + [f"set {about.keys[0]}"] * bool(about.keys)
    return f"To log in: {', or '.join(ways)}." if ways else ""


def _node(agents: Sequence[Installed], wakeup: Wakeup, seconds: float) -> Finding:
    """Check Node.js, which agents installed from npm need."""
    environment = child_environment({})
    found = look_up("node", environment)
    problem, version = found.problem, ""
    if not problem:
        with Interview(found.program, harmless(environment), wakeup, seconds) as interview:
            answer = interview.ask("--version")
        problem, version = answer.problem, version_in(answer.out)
    if problem:
        names = ", ".join(sorted({os.path.basename(a.program) for a in agents if a.is_node_script}))
        return Finding("node", WARNING, problem, f"Install Node.js, which {names} needs.")
    return Finding("node", OK, f"{version} at {found.program}")
