"""Write docs/settings.md from the types of the settings: every key, its type, default and description.

scripts/uv run python -m scripts.settings_page [--check]
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.inspect import (
    BoolType,
    DictType,
    EnumType,
    Field,
    FloatType,
    IntType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from ralph.settings import CommandSettings, RolesSettings, Settings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "settings.md"

ROLE = "ROLE"
"""Stands for the name of any role: all of them have the same keys."""

HEAD = """\
# Settings

<!-- Written by `make docs` from src/ralph/settings.py. Change the descriptions there. -->

Ralph reads its settings from up to three places. A later one overrides an earlier one:

1. `.ralph/settings.json` in the project: the settings to commit. `ralph init` writes this file.
2. `.ralph/settings.local.json` next to it: your own settings and secrets. Git ignores this file.
3. Command-line options, for example `-m 20` or `--agent codex`.

Objects are merged key by key; lists and single values are replaced as a whole. `--settings FILE` reads another file and,
if there is one, the `.local.json` file next to it.

```json
{
  "maximumIterations": 10,
  "completionResponse": "DONE",
  "agent": {
    "command": "claude",
    "flags": ["--model opus"],
    "permissions": "edit",
    "fallbacks": [{"command": "codex"}]
  },
  "guardrails": [
    {"command": "make lint", "failAction": "APPEND", "hint": "Fix lint errors only."},
    {"command": "make test", "timeoutSeconds": 600}
  ],
  "scm": {"command": "git", "tasks": ["commit", "push"]}
}
```

- `ralph config` prints every value in force and where it comes from.
- `ralph config --schema` prints the JSON Schema. Save it and name it in `"$schema"` so that your editor completes keys.
- An unknown key is an error, with its line and the key you probably meant.

In the tables below, `[]` in a key stands for each entry of a list. A default of `null` means that Ralph chooses; the
description says how.
"""


class Section(NamedTuple):
    """A heading, the top-level keys below it, and a pointer to further reading."""

    title: str
    keys: tuple[str, ...]
    more: str = ""


SECTIONS = (
    Section(
        "Run",
        (
            "maximumIterations",
            "completionResponse",
            "includeCompletionInstruction",
            "includeIterationCountInPrompt",
            "outputTruncateChars",
        ),
    ),
    Section("Agent", ("agent",), "[agents.md](agents.md) describes each agent."),
    Section(
        "Guardrails",
        ("guardrails", "protect"),
        "[proof.md](proof.md#tests-as-they-were) says how tests are protected.",
    ),
    Section(
        "Commits", ("scm", "snapshots"), "[reference.md](reference.md#commits) has the rules for commits."
    ),
    Section(
        "Limits and timeouts",
        (
            "maxCostUsd",
            "maxTokens",
            "maxDurationSeconds",
            "stagnationLimit",
            "iterationTimeoutSeconds",
            "idleTimeoutSeconds",
            "exitGraceSeconds",
            "maxLimitWaitSeconds",
        ),
    ),
    Section(
        "Command guard",
        ("guard",),
        "[guard.md](guard.md) describes the built-in rules; `ralph guard --rules` lists them.",
    ),
    Section("Sandbox", ("sandbox",), "[sandbox.md](sandbox.md) says what each backend protects."),
    Section(
        "`ralph work`",
        ("ralph",),
        f"`{ROLE}` is `coder`, `reviewer`, `tester` or `qa`. [tasks.md](tasks.md) explains tasks and roles,"
        " [verification.md](verification.md) the verification methods.",
    ),
    Section("`ralph supervise`", ("supervise",)),
    Section("Notifications", ("notify",), "[report.md](report.md#notifications) has examples."),
    Section(
        "Display",
        (
            "streamAgentOutput",
            "useEmoji",
            "useColor",
            "theme",
            "showTimestamp",
            "maxOutputLines",
            "maxOutputChars",
        ),
    ),
)


class Row(NamedTuple):
    key: str
    type: str
    default: str
    description: str


def page() -> str:
    """Return the whole page."""
    fields = {field.encode_name: field for field in _struct(type_info(Settings)).fields}
    check_sections(list(fields))
    return "\n".join([HEAD, *(_section(section, fields) for section in SECTIONS)])


def rows(field: Field, prefix: str = "") -> Iterator[Row]:
    """Return the rows of a key: one, or one for each key of the object it holds."""
    key = f"{prefix}{field.encode_name}"
    kind, description = _plain(field.type)
    inner, is_list = (_plain(kind.item_type)[0], True) if isinstance(kind, VarTupleType) else (kind, False)
    struct = next((each for each in _choices(inner) if isinstance(each, StructType)), None)
    if struct is None or struct.cls is CommandSettings:
        yield Row(key, _name(kind), _default(field), description)
    elif struct.cls is RolesSettings:
        yield from rows(msgspec.structs.replace(struct.fields[0], encode_name=ROLE), f"{key}.")
    else:
        if description:
            yield Row(key, "list of objects" if is_list else "object", _default(field), description)
        for each in struct.fields:
            yield from rows(each, f"{key}[]." if is_list else f"{key}.")


def check_sections(keys: list[str]) -> None:
    """Every key of the settings stands in exactly one section, and nothing else does."""
    listed = [key for section in SECTIONS for key in section.keys]
    if sorted(listed) != sorted(keys):
        missing, unknown = set(keys) - set(listed), set(listed) - set(keys)
        raise SystemExit(
            f"scripts/settings_page.py, SECTIONS: missing {sorted(missing)}, unknown {sorted(unknown)},"
            f" or one is listed twice."
        )


def _section(section: Section, fields: dict[str, Field]) -> str:
    lines = [f"## {section.title}", ""]
    if texts := list(filter(None, [_purpose(section, fields), section.more])):
        lines += [" ".join(texts), ""]
    lines += ["| key | type | default | description |", "| --- | --- | --- | --- |"]
    for key in section.keys:
        lines += [
            f"| `{row.key}` | {_cell(row.type)} | {_cell(row.default)} | {_cell(row.description)} |"
            for row in rows(fields[key])
        ]
    return "\n".join([*lines, ""])


def _purpose(section: Section, fields: dict[str, Field]) -> str:
    """What the type of a section's only key says of itself."""
    kind = _plain(fields[section.keys[0]].type)[0]
    inner = _plain(kind.item_type)[0] if isinstance(kind, VarTupleType) else kind
    struct = next((each for each in _choices(inner) if isinstance(each, StructType)), None)
    return (inspect.getdoc(struct.cls) or "").replace("\n", " ") if struct else ""


def _struct(kind: Type) -> StructType:
    assert isinstance(kind, StructType)
    return kind


def _plain(kind: Type) -> tuple[Type, str]:
    """Return a type without its metadata, and its description."""
    if isinstance(kind, Metadata):
        return kind.type, str((kind.extra_json_schema or {}).get("description", ""))
    return kind, ""


def _choices(kind: Type) -> tuple[Type, ...]:
    return kind.types if isinstance(kind, UnionType) else (kind,)


def _name(kind: Type) -> str:
    """Return a type in plain words; a kind that is not known here is an error."""
    match _plain(kind)[0]:
        case UnionType(types=types):
            return " or ".join(_name(each) for each in types if not isinstance(each, NoneType))
        case EnumType(cls=cls):
            return "one of " + ", ".join(f"`{member.value}`" for member in cls)
        case LiteralType(values=values):
            return "one of " + ", ".join(f"`{value}`" for value in values)
        case VarTupleType(item_type=item):
            return f"list of {_name(item).replace('object', 'objects').replace('one of', 'any of')}"
        case DictType(value_type=value):
            return f"object: name to {_name(value)}"
        case IntType(ge=1):
            return "whole number, 1 or more"
        case StructType(cls=cls) if cls is CommandSettings:
            return "object with the keys of `agent`"
        case known if type(known) in _NAMES:
            return _NAMES[type(known)]
        case unknown:
            raise SystemExit(f"scripts/settings_page.py: no name for {unknown}.")


_NAMES: dict[type[Type], str] = {
    BoolType: "true/false",
    FloatType: "number",
    IntType: "whole number",
    StrType: "text",
}


def _default(field: Field) -> str:
    if field.required:
        return "required"
    value: Any = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{msgspec.json.format(msgspec.json.encode(value), indent=0).decode()}`"


def _cell(text: str) -> str:
    """Return a text as it may stand in a table; what is in backticks is left as it is."""
    parts = text.replace("|", "\\|").replace("\n", " ").split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts)


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        return int(PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
