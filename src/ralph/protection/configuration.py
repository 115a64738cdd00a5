"""The keys of configuration files that decide which tests run and how, and putting them back as they were.

A file such as `pyproject.toml` configures much besides a test runner, so only these keys are put back: in its text,
checked by parsing. Where that is not possible, the whole old file is used.
"""

from __future__ import annotations

import configparser
import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

Patterns = tuple[tuple[str, ...], ...]
"""Paths of keys, as globs for each level."""


class Format(Enum):
    """How a file is read. Of XML and code with blocks only the parts that mention tests are compared."""

    TOML = "toml"
    INI = "ini"
    JSON = "json"
    LINES = "lines"
    XML = "xml"
    BLOCKS = "blocks"


class TestKeys(Struct, frozen=True):
    """The keys of one kind of file (`name`: the end of its path) that configure test runners."""

    name: str
    format: Format
    keys: tuple[str, ...]

    def covers(self, path: str) -> bool:
        return fnmatchcase(f"/{path}", f"*/{self.name}")

    @property
    def patterns(self) -> Patterns:
        return tuple(tuple(key.split(".")) for key in self.keys)


def _keys(name: str, format: Format, keys: str) -> TestKeys:
    return TestKeys(name, format, tuple(keys.split()))


_COVERAGE = (
    _keys(".coveragerc", Format.INI, "*"),
    _keys("setup.cfg", Format.INI, "tool:pytest pytest coverage:*"),
    _keys("pyproject.toml", Format.TOML, "tool.pytest* tool.coverage project.entry-points.pytest11"),
)
_PYTEST = (*_COVERAGE, _keys("tox.ini", Format.INI, "pytest"))
_TOX = (
    *_COVERAGE,
    _keys("tox.ini", Format.INI, "pytest testenv*.commands* testenv*.allowlist_externals"),
    _keys("pyproject.toml", Format.TOML, "tool.tox tool.pytest* tool.coverage project.entry-points.pytest11"),
)
_NODE = (
    _keys("package.json", Format.JSON, "jest mocha ava vitest c8 nyc playwright"),
    _keys(".npmrc", Format.LINES, "script-shell node-options ignore-scripts"),
    _keys("bunfig.toml", Format.TOML, "test"),
    _keys("deno.json", Format.JSON, "tasks.test* test"),
    _keys("vite.config.*", Format.BLOCKS, r"\btest\s*:\s*\{"),
)
_CARGO = (
    _keys("Cargo.toml", Format.TOML, "test package.autotests lib.test lib.doctest lib.harness"),
    _keys(".cargo/config.toml", Format.TOML, "alias target build.target"),
    _keys(".config/nextest.toml", Format.TOML, "profile"),
)
_JVM = (
    _keys("pom.xml", Format.XML, ""),
    _keys("build.gradle", Format.BLOCKS, r"\b(test|tasks\.\w*[tT]est\w*|withType\W+Test\W*)\s*\{"),
    _keys("build.gradle.kts", Format.BLOCKS, r"\b(test|\w*<Test>\(?\)?|named\W+test\W+)\s*\{"),
    _keys("gradle.properties", Format.LINES, "*test* *Test*"),
    _keys(".mvn/maven.config", Format.LINES, "*"),
    _keys(".mvn/jvm.config", Format.LINES, "*"),
)
_PHP = (_keys("composer.json", Format.JSON, "scripts.test* scripts.pre-test* scripts.post-test*"),)

CONFIGURATION: dict[str, tuple[TestKeys, ...]] = {
    **dict.fromkeys(("pytest", "py.test"), _PYTEST),
    **dict.fromkeys(("unittest", "nose2"), _COVERAGE),
    **dict.fromkeys(("tox", "nox"), _TOX),
    **dict.fromkeys(
        (
            *("npm", "yarn", "pnpm", "bun run", "bun test", "deno test", "jest", "ava", "mocha"),
            *("vitest", "vitest run", "vitest watch", "vitest dev"),
            *("node --test", "playwright test", "cypress run"),
        ),
        _NODE,
    ),
    **dict.fromkeys(("cargo test", "cargo nextest"), _CARGO),
    **dict.fromkeys(("mvn", "mvnw", "gradle", "gradlew", "sbt"), _JVM),
    **dict.fromkeys(("phpunit", "pest"), _PHP),
}
"""The configuration of each runner, besides the files that belong to it alone (see `runners`)."""


def keys_of(names: Iterable[str], scripts: Iterable[str] = ()) -> list[TestKeys]:
    """The keys that these runners read. `scripts`: scripts of a `package.json` that the commands run."""
    found = [keys for name in names for keys in CONFIGURATION.get(name, ())]
    if more := tuple(f"scripts.{name}" for name in scripts if "." not in name):
        found.append(TestKeys("package.json", Format.JSON, more))
    return list(dict.fromkeys(found))


def with_old_keys(keys: Sequence[TestKeys], path: str, old: str | None, new: str) -> str | None:
    """The new text of a file with the test keys of the old one (None: it did not exist).

    Returns `new` itself if the keys are the same, and None if only the whole old file has them.
    """
    patterns = tuple(
        dict.fromkeys(pattern for each in keys if each.covers(path) for pattern in each.patterns)
    )
    format = next(each.format for each in keys if each.covers(path))
    before = "" if old is None else old
    if format in (Format.XML, Format.BLOCKS):
        parts = _blocks if format is Format.BLOCKS else _xml_parts
        heads = "|".join(key for each in keys if each.covers(path) for key in each.keys)
        return new if parts(before, heads) == parts(new, heads) else None
    parse, edit = _FORMATS[format]
    try:
        was, now = parse(before), parse(new)
    except ValueError:
        return new if before == new else None
    if _part(was, patterns) == _part(now, patterns):
        return new
    try:
        edited = edit(before, new, patterns)
        result = parse(edited)
    except ValueError:
        return None
    is_right = _part(result, patterns) == _part(was, patterns) and _rest(result, patterns) == _rest(
        now, patterns
    )
    return edited if is_right else None


# ---- the keys in parsed values ----


def _part(values: dict[str, Any], patterns: Patterns) -> dict[str, Any]:
    """The values of the matching keys; a table without any is left out."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        rest = _inside(key, patterns)
        if () in rest:
            found[key] = value
        elif rest and isinstance(value, dict) and (inner := _part(value, rest)):
            found[key] = inner
    return found


def _rest(values: dict[str, Any], patterns: Patterns) -> dict[str, Any]:
    """All other values; a table with nothing else is left out."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        rest = _inside(key, patterns)
        if () in rest:
            continue
        if rest and isinstance(value, dict):
            if inner := _rest(value, rest):
                found[key] = inner
        else:
            found[key] = value
    return found


def _inside(key: str, patterns: Patterns) -> Patterns:
    """The patterns that continue below this key; () is a pattern that ends here."""
    return tuple(pattern[1:] for pattern in patterns if pattern and fnmatchcase(key, pattern[0]))


# ---- texts with sections: TOML, INI ----


class _Section(Struct):
    """A section of a text: its path, and its lines with the header. The first one has no header."""

    path: tuple[str, ...]
    lines: list[str]


_TOML_HEADER = re.compile(r"\s*\[{1,2}([^\[\]]+)\]{1,2}\s*(#.*)?$")
_INI_HEADER = re.compile(r"\[([^\]]+)\]")
_TOML_KEY = re.compile(r"""\s*["']?([\w.-]+)["']?\s*=""")
_INI_KEY = re.compile(r"([^\s=:#;][^=:]*?)\s*[=:]")


def _toml_path(name: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in name.split("."))


def _sections(text: str, header: re.Pattern[str], path: Callable[[str], tuple[str, ...]]) -> list[_Section]:
    found = [_Section((), [])]
    for line in text.splitlines():
        if mark := header.match(line):
            found.append(_Section(path(mark[1]), []))
        found[-1].lines.append(line)
    return found


def _edited_sections(
    old: str,
    new: str,
    patterns: Patterns,
    header: re.Pattern[str],
    key: re.Pattern[str],
    path: Callable[[str], tuple[str, ...]],
) -> str:
    """Replace whole sections, and keys inside the others."""
    was, now = _sections(old, header, path), _sections(new, header, path)
    kept = [_Section(each.path, list(each.lines)) for each in now if not _is_whole(each.path, patterns)]
    for each in kept:
        each.lines = _split_lines(each, patterns, key)[1]
    for each in was:
        if _is_whole(each.path, patterns):
            kept.append(each)
        elif lines := _split_lines(each, patterns, key)[0]:
            _add_lines(kept, each, lines)
    return "\n".join(line for each in kept for line in each.lines) + "\n"


def _is_whole(path: tuple[str, ...], patterns: Patterns) -> bool:
    for part in path:
        patterns = _inside(part, patterns)
        if () in patterns:
            return True
    return False


def _split_lines(section: _Section, patterns: Patterns, key: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """The lines of matching keys, with the indented lines that continue them, and all other lines."""
    for part in section.path:
        patterns = _inside(part, patterns)
    matching: list[str] = []
    others: list[str] = []
    target = others
    for line in section.lines:
        if found := key.match(line):
            target = matching if () in _inside(found[1].strip(), patterns) else others
        elif not line[:1].isspace():
            target = others
        target.append(line)
    return matching, others


def _add_lines(sections: list[_Section], old: _Section, lines: list[str]) -> None:
    """Add lines to the section they came from, which may be missing now."""
    for each in sections:
        if each.path == old.path:
            at = 1 if old.path else 0  # behind the header
            each.lines[at:at] = lines
            return
    sections.append(_Section(old.path, [old.lines[0], *lines]))


def _toml(old: str, new: str, patterns: Patterns) -> str:
    return _edited_sections(old, new, patterns, _TOML_HEADER, _TOML_KEY, _toml_path)


def _ini(old: str, new: str, patterns: Patterns) -> str:
    return _edited_sections(old, new, patterns, _INI_HEADER, _INI_KEY, lambda name: (name,))


def _read_ini(text: str) -> dict[str, Any]:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, default_section="\0")
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error)) from error
    return {name: dict(parser[name]) for name in parser.sections()}


# ---- JSON, lines ----


def _read_json(text: str) -> dict[str, Any]:
    values = json.loads(text) if text.strip() else {}
    if not isinstance(values, dict):
        raise ValueError("not an object")
    return values


def _json(old: str, new: str, patterns: Patterns) -> str:
    merged = _merged(_rest_with_tables(_read_json(new), patterns), _part(_read_json(old), patterns))
    return json.dumps(merged, indent=2, ensure_ascii=False) + "\n"


def _rest_with_tables(values: dict[str, Any], patterns: Patterns) -> dict[str, Any]:
    """Like `_rest`, but tables that are now empty stay."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        rest = _inside(key, patterns)
        if () not in rest:
            is_table = bool(rest) and isinstance(value, dict)
            found[key] = _rest_with_tables(value, rest) if is_table else value
    return found


def _merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in more.items():
        was = result.get(key)
        result[key] = _merged(was, value) if isinstance(was, dict) and isinstance(value, dict) else value
    return result


def _read_lines(text: str) -> dict[str, Any]:
    """Lines `key = value` as values; other lines count as keys."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if line.strip() and not line.lstrip().startswith(("#", ";")):
            found.setdefault(key.strip(), []).append(value.strip())
    return found


def _lines(old: str, new: str, patterns: Patterns) -> str:
    kept = [line for line in new.splitlines() if not _part(_read_lines(line), patterns)]
    kept += [line for line in old.splitlines() if _part(_read_lines(line), patterns)]
    return "".join(f"{line}\n" for line in kept)


_FORMATS: dict[Format, tuple[Callable[[str], dict[str, Any]], Callable[[str, str, Patterns], str]]] = {
    Format.TOML: (tomllib.loads, _toml),
    Format.INI: (_read_ini, _ini),
    Format.JSON: (_read_json, _json),
    Format.LINES: (_read_lines, _lines),
}


# ---- parts that are only compared ----


_XML_PROPERTY = re.compile(
    r"<(skipTests|skipITs|skip|testFailureIgnore|maven\.test\.[\w.]+|surefire\.[\w.]+)\s*>([^<]*)<"
)
_XML_PLUGIN = re.compile(r"<plugin>(?:(?!</plugin>).)*</plugin>", re.DOTALL)
_XML_TEST_PLUGIN = re.compile(r"<\w+Id>\s*(maven-(?:surefire|failsafe)|jacoco)")


def _xml_parts(text: str, heads: str) -> list[str]:
    """The properties of a `pom.xml` that skip tests, and the plugins that run them."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    plugins = [each for each in _XML_PLUGIN.findall(text) if _XML_TEST_PLUGIN.search(each)]
    return [*map("=".join, _XML_PROPERTY.findall(text)), *(re.sub(r"\s+", " ", each) for each in plugins)]


def _blocks(text: str, heads: str) -> list[str]:
    """The blocks in braces that start with one of these heads."""
    found = []
    for head in re.finditer(heads, text):
        depth = 0
        for at in range(head.end() - 1, len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 0:
                break
        found.append(re.sub(r"\s+", " ", text[head.start() : at + 1]))
    return found


def directory_of(path: str, keys: Sequence[TestKeys]) -> str:
    """The directory that a configuration file is for: that of `.cargo/config.toml` is the one with `.cargo`."""
    levels = next((each.name.count("/") for each in keys if each.covers(path)), 0)
    for _ in range(levels + 1):
        path = posixpath.dirname(path)
    return path
