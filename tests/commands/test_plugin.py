"""`ralph plugin`: the path of the plugin, and copies that overwrite no one's files."""

from __future__ import annotations

import filecmp
import os
from pathlib import Path

from conftest import Project
from plugin.plugin_support import PLUGIN


def same(one: Path, other: Path) -> bool:
    """Whether two folders have the same files with the same bytes."""
    files = [
        {str(path.relative_to(place)) for path in place.rglob("*") if "__pycache__" not in path.parts}
        for place in (one, other)
    ]
    plain = [name for name in files[0] if (one / name).is_file()]
    return files[0] == files[1] and filecmp.cmpfiles(one, other, plain, shallow=False)[0] == plain


def test_the_path(project: Project) -> None:
    """Alone on stdout, for use in a shell."""
    result = project.run("plugin", "path")
    assert (result.code, result.out, result.err) == (0, f"{PLUGIN}\n", "")


def test_a_copy_in_the_data_directory(project: Project) -> None:
    """With the commands that make Claude Code load it."""
    project.extra_env = {"XDG_DATA_HOME": str(project.path / "my data")}
    result = project.run("plugin", "install")
    (place,) = project.path.rglob("claude-plugin")
    assert (result.code, result.err) == (0, "") and same(PLUGIN, place)
    assert result.out.splitlines() == [
        f"Plugin installed in {place}",
        "To load it in every Claude Code session, run once:",
        f"  claude plugin marketplace add '{place}'",
        "  claude plugin install ralph@ralph",
    ]
    assert os.access(place / "scripts" / "ralph.sh", os.X_OK)


def test_an_older_copy_is_replaced(project: Project) -> None:
    """Nothing of it is left, and nothing is left next to it."""
    assert project.run("plugin", "install", "--dir", "a/b").code == 0
    (project.path / "a/b/hooks/hooks.json").write_text("{}")
    (project.path / "a/b/skills/old").mkdir()
    assert project.run("plugin", "install", "--dir", "a/b").code == 0
    assert same(PLUGIN, project.path / "a/b")
    assert [path.name for path in (project.path / "a").iterdir()] == ["b"]


def test_other_files_are_kept(project: Project) -> None:
    """A folder with files, a plugin of the same name, a file, a link: refused, and renamed with --force."""
    mine = project.path / "mine"
    (mine / ".claude-plugin").mkdir(parents=True)
    (mine / ".claude-plugin/plugin.json").write_text('{"name": "ralph"}')
    file, link = project.path / "file", project.path / "link"
    file.write_text("text")
    link.symlink_to(mine)
    for place in (mine, file, link):
        refused = project.run("plugin", "install", "--dir", place.name)
        assert refused.code == 2 and "exists, but is not a copy of Ralph's plugin" in refused.err
    before = [path.name for path in mine.rglob("*")]
    result = project.run("plugin", "install", "--dir", "link", "--force")
    assert (project.path / "link.old").is_symlink() and [path.name for path in mine.rglob("*")] == before
    assert f"The old contents were moved to {project.path / 'link.old'}" in result.out
    (project.path / "mine.old").touch()
    assert project.run("plugin", "install", "--dir", "mine", "--force").code == 0
    assert [path.name for path in (project.path / "mine.old2").rglob("*")] == before
    assert same(PLUGIN, mine) and same(PLUGIN, link)


def test_an_empty_folder_can_be_used(project: Project) -> None:
    """It is filled with the plugin."""
    (project.path / "empty").mkdir()
    assert project.run("plugin", "install", "--dir", "empty").code == 0
    assert same(PLUGIN, project.path / "empty")


def test_a_link_in_a_circle_is_refused(project: Project) -> None:
    """It counts as someone else's file."""
    (project.path / "circle").symlink_to("circle")
    result = project.run("plugin", "install", "--dir", "circle")
    assert result.code == 2 and "exists, but is not a copy of Ralph's plugin" in result.err, result.err


def test_the_plugin_is_not_copied_into_itself(project: Project) -> None:
    """Copying into the plugin, over it or over a parent folder is refused, even with --force."""
    for place in (PLUGIN, PLUGIN / "skills" / "x", PLUGIN.parent):
        result = project.run("plugin", "install", "--dir", str(place), "--force")
        assert result.code == 2 and "is part of Ralph itself" in result.err
    assert (PLUGIN / ".claude-plugin/plugin.json").is_file()


def test_a_folder_below_a_file(project: Project) -> None:
    """A file above it: one clear error."""
    (project.path / "file").touch()
    result = project.run("plugin", "install", "--dir", "file/below")
    assert result.code == 2 and "file is not a directory." in result.err and "Traceback" not in result.err
