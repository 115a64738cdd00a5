"""Skills, templates and scripts of the plugin contain everything that a loop needs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from plugin.plugin_support import PLUGIN
from ralph.stories import rules

SKILLS = sorted(path.parent for path in PLUGIN.glob("skills/*/SKILL.md"))


# ---- skills ----


@pytest.mark.parametrize("folder", SKILLS, ids=lambda folder: folder.name)
def test_a_skill_can_be_listed(folder: Path) -> None:
    """Its front matter has the name of its folder, and one line that says when to use it."""
    _, front, text = (folder / "SKILL.md").read_text().split("---\n", 2)
    values = yaml.safe_load(front)
    assert values["name"] == folder.name and text.startswith("\n# ")
    assert "Use " in values["description"] and len(values["description"]) < 500


def test_every_skill_is_a_folder() -> None:
    """A file in `skills/` would be ignored silently."""
    assert {folder.name for folder in SKILLS} >= {"ralph-plan", "ralph-init", "ralph-archive"}
    assert [path for path in (PLUGIN / "skills").iterdir() if not (path / "SKILL.md").is_file()] == []


def test_the_trigger_phrases_of_the_planner() -> None:
    """They are where Claude Code looks when it chooses a skill."""
    description = (PLUGIN / "skills/ralph-plan/SKILL.md").read_text().split("---\n")[1]
    for phrase in (
        "/ralph-plan",
        "plan this feature for ralph",
        "create a ralph prd",
        "generate tasks for ralph",
    ):
        assert phrase in description


def test_the_example_of_the_planner_is_a_task_list() -> None:
    """By the same rules that the stop hook applies."""
    (example,) = re.findall(
        r"```json\n(.*?)```", (PLUGIN / "skills/ralph-plan/SKILL.md").read_text(), re.DOTALL
    )
    assert rules.schema_problems(json.loads(example)) == []


# ---- templates ----


def template(name: str) -> str:
    return (PLUGIN / "templates" / name).read_text()


def test_the_prompt_has_every_placeholder() -> None:
    """It has all of them, and none that Ralph does not fill in."""
    names = ("ITERATION", "MAX_ITERATIONS", "REVIEW_CAP", "SKIP_REVIEW", "MODE", "STORY")
    assert set(re.findall(r"\$\w+", template("prompt.md"))) == {f"$RALPH_{name}" for name in names}


@pytest.mark.parametrize(
    "words",
    [
        *("Step 1: Orient", "Step 2: Select", "Step 3-implement", "Step 3-review:", "Step 3-review-fix"),
        *("Step 4: Document", "Step 5: Consider", "Step 6: Commit and signal", "[AUTO-APPROVED AT CAP]"),
        *(
            "`feat: [US-xxx] - [Title]`",
            "`review: [US-xxx] - approved`",
            "`review: [US-xxx] - changes requested`",
        ),
        *(
            "`fix: [US-xxx] - address review feedback`",
            "<promise>COMPLETE</promise>",
            "One story per iteration",
        ),
        *("NEVER set `passes: true`", "`ralph/prd.md` is read-only", "Do not weaken", "If you are stuck"),
        *(
            "Review iterations do not fix code",
            "address ALL of the feedback",
            "add, split and reorder stories",
        ),
        *(
            "If reviews are skipped",
            "Codebase Patterns",
            "`git diff`",
            "`git log --oneline -5`",
            "verifyCommands",
        ),
    ],
)
def test_the_prompt_says(words: str) -> None:
    """Steps, modes, decisions, hard rules and commit messages."""
    assert words in template("prompt.md")


def test_the_tag_of_the_prompt_is_on_its_own_line() -> None:
    """The agent has to write it on a separate line."""
    assert template("prompt.md").splitlines().count("<promise>COMPLETE</promise>") == 1


def test_the_prd_has_ten_sections_with_their_tiers() -> None:
    """Each has a comment that says what to write and for which size it is needed."""
    sections = re.split(r"^## ", template("prd-template.md"), flags=re.MULTILINE)[1:]
    titles = [
        "Summary",
        "Problem Statement",
        "Goals",
        "Non-Goals",
        "Background & Context",
        "Technical Design",
    ]
    titles += ["Constraints", "Edge Cases & Error Handling", "Risks & Mitigations", "Open Questions"]
    assert [each.splitlines()[0] for each in sections] == [f"{n}. {each}" for n, each in enumerate(titles, 1)]
    assert all(re.search(r"<!-- (Required|Recommended): ", each) for each in sections)
    assert re.findall(r"^### (6\w)", template("prd-template.md"), re.MULTILINE) == [
        "6a",
        "6b",
        "6c",
        "6d",
        "6e",
    ]


def test_the_task_list_waits_for_its_criteria() -> None:
    """Apart from the criteria, which nobody can guess, the starter is a valid task list."""
    board = json.loads(template("tasks-template.json"))
    (problem,) = rules.schema_problems(board)
    assert "acceptanceCriteria" in problem
    assert list(board) == ["project", "branchName", "description", "verifyCommands", "userStories"]


def test_the_progress_log() -> None:
    """Two placeholders, patterns to curate, and a line after which entries are appended."""
    text = template("progress-template.md")
    assert re.findall(r"\{\{\w+\}\}", text) == ["{{DATE}}", "{{PROJECT_NAME}}"]
    assert "## Codebase Patterns\n" in text and text.endswith("\n---\n")


# ---- scripts ----


@pytest.mark.parametrize(
    ("script", "command"), [("ralph", "run"), ("ralph-init", "init"), ("ralph-archive", "archive")]
)
def test_scripts_hand_over_to_ralph(tmp_path: Path, script: str, command: str) -> None:
    """All arguments and ralph's exit code are passed through; without ralph they say what is missing."""
    path = PLUGIN / "scripts" / f"{script}.sh"
    assert os.access(path, os.X_OK)
    ralph = tmp_path / "ralph"
    ralph.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n")
    arguments = ["-n", "3", "--project-dir", "a b", "*", ""]
    absent = subprocess.run(
        ["/bin/sh", path, *arguments], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert (absent.returncode, absent.stdout) == (2, "")
    assert f"{script}.sh: the ralph command is not installed" in absent.stderr
    ralph.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", path, *arguments], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (7, f"<prd><{command}><-n><3><--project-dir><a b><*><>")
