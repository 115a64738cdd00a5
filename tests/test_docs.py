"""The documents agree with the source: generated pages, lists and links."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest

from ralph import settings
from ralph.core.model import Cause, Outcome

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))

from scripts import moving_picture, reference_page, settings_page  # noqa: E402

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]

# ---- settings.md ----


def keys(schema: dict[str, Any], node: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Return every key that the JSON Schema knows below a node, dotted; those of another agent only once."""
    for choice in node.get("anyOf", [node]):
        if "$ref" in choice:
            name = choice["$ref"].rpartition("/")[2]
            if name != "CommandSettings":
                for key, value in schema["$defs"][name].get("properties", {}).items():
                    yield f"{prefix}{key}"
                    yield from keys(schema, value, f"{prefix}{key}.")
        elif isinstance(choice.get("items"), dict):
            yield from keys(schema, choice["items"], f"{prefix.rstrip('.')}[].")


def test_the_settings_page_is_up_to_date() -> None:
    """`make docs` has been run since the settings were changed."""
    assert settings_page.PAGE.read_text() == settings_page.page()


def test_every_settings_key_is_on_its_page() -> None:
    """Each value that a settings file can hold has a row; an object has one for each of its keys."""
    schema = settings.schema()
    roles = re.compile(r"^ralph\.agents\.\w+")
    found = {roles.sub("ralph.agents.ROLE", key) for key in keys(schema, schema)} - {"$schema"}
    objects = {key for key in found if any(other.startswith((f"{key}.", f"{key}[].")) for other in found)}
    page = settings_page.PAGE.read_text()
    assert {key for key in found - objects if f"\n| `{key}` |" not in page} == set()
    assert len(found) > 80  # the schema was read completely


def test_a_new_settings_key_needs_a_section() -> None:
    """A key that no section names stops the script with a message that names it."""
    with pytest.raises(SystemExit, match=r"missing \['novelty'\]"):
        settings_page.check_sections(["novelty"])


# ---- reference.md ----


def names_in_source(pattern: str) -> set[str]:
    """Return every match of a pattern in the files of the package."""
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".json", ".md", ".sh")]
    return {name for path in files for name in re.findall(pattern, path.read_text())}


def test_the_reference_page_is_up_to_date() -> None:
    """`make docs` has been run since a command or an exit code was changed."""
    assert reference_page.PAGE.read_text() == reference_page.page()


def test_every_exit_code_is_on_the_reference_page() -> None:
    """The table has the exit code of each outcome."""
    page = reference_page.PAGE.read_text()
    assert [each for each in Outcome if f"\n| {each.exit_code} | `{each}` |" not in page] == []
    assert [each for each in Cause if f"`{each}`" not in page] == []


def test_every_variable_is_on_the_reference_page() -> None:
    """All RALPH_* variables that the source names, and all others that it reads by name."""
    ours = names_in_source(r"\b_?RALPH_[A-Z_]*[A-Z]\b")
    read = names_in_source(r"""environ(?:\.get\(|\[)b?"([A-Z_]+)\"""")
    page = reference_page.PAGE.read_text()
    named = set(re.findall(r"`\$?(\w+)`", page))
    assert (ours | read) - named == set()
    assert len(ours) > 15 and len(read) > 5


# ---- the index, and links ----


def test_every_document_is_in_the_index() -> None:
    """docs/README.md has a line for each of the other pages."""
    linked = set(re.findall(r"^- \[[^\]]+\]\(([\w-]+\.md)\)", (DOCS / "README.md").read_text(), re.MULTILINE))
    assert {path.name for path in DOCS.glob("*.md")} - linked == {"README.md"}


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower().strip()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = sum(
            each == anchor or re.fullmatch(rf"{re.escape(anchor)}-\d+", each) is not None for each in found
        )
        found.add(f"{anchor}-{count}" if count else anchor)
    return found


def links(path: Path) -> Iterator[str]:
    """Return the relative links and pictures of a page, without those in code."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"""(?:src|srcset|href)="([^"]+)\"""", text)
    yield from (target for target in targets if not re.match(r"[a-z]+:", target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link names a file of the repository and, after `#`, one of its headings."""
    broken = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


# ---- the moving picture of a run ----


def test_the_picture_of_a_run_needs_nothing_else() -> None:
    """It is well-formed, has no script, loads nothing, names no path of the machine it was recorded on, and is small."""
    text = (DOCS / "run.svg").read_text()
    picture = ElementTree.fromstring(text)
    kinds = {element.tag.rpartition("}")[2] for element in picture.iter()}
    assert kinds <= {"svg", "title", "style", "defs", "g", "text", "use", "rect", "circle", "path"}
    assert set(re.findall(r'href="(.)', text)) == {"#"}
    assert not re.search(r"@import|url\(|/tmp/|/home/|/root/|/Users/", text)
    assert len(text) < 150_000


def test_a_picture_shows_each_frame_for_its_time_and_rests_on_the_last() -> None:
    """Without motion, only the last frame is there; text keeps the width of its cells."""
    screen = pyte.Screen(20, 2)
    stream = pyte.Stream(screen)
    frames = []
    for text, seconds in (("\x1b[31mwrong\x1b[0m", 1.0), ("\r\n✅ <right>", 3.0)):
        stream.feed(text)
        frames.append(moving_picture.Frame(moving_picture.lines_of(screen), seconds))
    picture = moving_picture.svg(frames, 20, 2, "Two frames")
    ElementTree.fromstring(picture)
    height = 2 * moving_picture.LEADING + moving_picture.BAR + moving_picture.MARGIN
    assert "animation:film 4.00s" in picture
    assert f"25.000%{{transform:translateY(-{height}px)}}" in picture
    assert f".film{{transform:translateY(-{height}px)" in picture
    assert 'textLength="42.0"' in picture and ">wrong</text>" in picture
    assert "&lt;right&gt;</text>" in picture
