"""The prompt of one iteration: base prompt, feedback, guidance, the completion instruction, the count."""

from __future__ import annotations

import re

from msgspec.structs import replace

from ralph.core.claims import neutralise
from ralph.core.command_output import CommandOutput, shorten
from ralph.core.model import (
    ClaimKind,
    ClaimRule,
    FailAction,
    Feedback,
    Prd,
    PromptSource,
    RunAgent,
    TaskBrief,
)
from ralph.core.text import clean

TRUNCATED = "... [truncated]"

_REFUSE = (
    "If the coder's work is not good enough, do not promise. Explain why, and send the task back to the coder by ending"
    " your answer with this line instead:\n\n<refuse>the reason in one line</refuse>"
)

COMMIT_MESSAGE = (
    "Provide a short imperative commit message for the changes. Output only the message, no explanation."
)


MAX_SUBJECT = 72


def commit_message(diff: str) -> str:
    """The prompt for a commit message: the question, then the changes."""
    return f"{COMMIT_MESSAGE}\n\nThe changes:\n\n{clean(diff)}" if diff else COMMIT_MESSAGE


def subject(prompt: str) -> str:
    """A commit message made from a prompt: its first line with words."""
    lines = (line.strip().lstrip("#>*-").strip() for line in clean(prompt).splitlines())
    text = next((line for line in lines if any(map(str.isalnum, line))), "")
    return text if len(text) <= MAX_SUBJECT else f"{text[: MAX_SUBJECT - 1].rstrip()}…"


def asking_for_claim(claim: ClaimRule) -> str:
    """All checks are green and only the claim is missing."""
    return (
        "All required checks passed, but your last answer did not say that you are done. If everything is done,"
        f" end your answer with this line:\n\n<{claim.tag}>{claim.text}</{claim.tag}>\n\n"
        "If something is left to do, do it now, or say what is left."
    )


def build(base: str, step: RunAgent, source: PromptSource, claim: ClaimRule) -> str:
    """The prompt for this iteration."""
    text = task_prompt(source.task, step, claim) if source.task else base
    if source.prd:
        text = filled(text, step, source.prd)
    knows_tag = has_tag(text, claim)
    for feedback in step.feedback:
        text = apply_feedback(text, feedback)
        knows_tag = knows_tag and feedback.action is not FailAction.REPLACE
    for steer in step.steer:
        text = f"{text}\n\nGuidance from the user: {steer.text}"
    if step.asks_claim:
        text = f"{text}\n\n{asking_for_claim(claim)}"
        knows_tag = True
    if source.instruction and claim.kind is not ClaimKind.DONE and not knows_tag:
        text = f"{text}\n\n{instruction(claim)}"
    if source.count:
        text = f"Iteration {step.iteration} of {step.of}, {step.of - step.iteration} remaining.\n\n{text}"
    return text


def filled(text: str, step: RunAgent, prd: Prd) -> str:
    """A PRD prompt with its variables replaced."""
    values = {
        "RALPH_ITERATION": step.iteration,
        "RALPH_MAX_ITERATIONS": step.of,
        "RALPH_REVIEW_CAP": prd.review_cap,
        "RALPH_SKIP_REVIEW": str(prd.skip_review).lower(),
        "RALPH_MODE": step.role,
        "RALPH_STORY": step.story or "none",
    }
    names = "|".join(values)
    return re.sub(rf"\$\{{?({names})\b\}}?", lambda found: str(values[found[1]]), text)


def task_prompt(task: TaskBrief, step: RunAgent, claim: ClaimRule) -> str:
    """The prompt of a role: the task, what done means, and how it will be verified."""
    sections = [
        f"# {task.id}: {task.title}",
        task.description.strip(),
        task.duty,
        f"## Ralph Loop Status\n- **Iteration**: {step.iteration}/{step.of}\n- **Agent**: {task.role}",
        f'## Task Outcome (What "Done" Means)\n{task.outcome}',
        "## Acceptance Criteria\n" + "\n".join(f"- [ ] {each}" for each in task.acceptance_criteria),
        "## Your Completion Requirements\n\nWhen you have GENUINELY completed this stage:",
        f"**Success Criteria for {task.role}:**\n{task.criteria}",
        f"**To signal completion, end your answer with this line:**\n\n{_tag(claim)}",
        "\n".join(["**CRITICAL:**", *_rules(task)]),
        _REFUSE if task.may_refuse else "",
        f"The loop will continue until genuine completion or iteration {step.of}.",
    ]
    if task.told:
        sections.append(f"## Why The Task Came Back To You\n{neutralise(task.told)}")
    if step.feedback:
        sections.append("## What Failed Last Time")
    elif step.iteration > 1:
        sections.append("## What Failed Last Time\nNo completion promise was found in your last answer.")
    return "\n\n".join(section for section in sections if section)


def _tag(claim: ClaimRule) -> str:
    return f"<{claim.tag}>{claim.text}</{claim.tag}>"


def _rules(task: TaskBrief) -> list[str]:
    return [
        "- Only output the promise when ALL acceptance criteria are truly met",
        f"- Your completion will be verified using: {task.method}",
        "- False promises will be detected and the loop will continue",
        "- If blocked, explain what's preventing completion",
    ]


def apply_feedback(text: str, feedback: Feedback) -> str:
    if feedback.action is FailAction.REPLACE:
        return feedback.text
    if feedback.action is FailAction.PREPEND:
        return f"{feedback.text}\n\n{text}"
    return f"{text}\n\n{feedback.text}"


def instruction(claim: ClaimRule) -> str:
    """When to print the tag, which is shown as it should be printed: bare, on a separate line."""
    return f"When everything is done, and only then, end your answer with this line:\n\n{_tag(claim)}"


def has_tag(text: str, claim: ClaimRule) -> bool:
    return re.search(rf"<{re.escape(claim.tag)}>", text, re.IGNORECASE) is not None


def guardrail_failure(
    command: str, exit_text: str, hint: str, log: str, output: CommandOutput, limit: int, missing: str = ""
) -> str:
    """Feedback about a failed guardrail. The hint is never truncated; the output is data.

    `missing`: what the command lacked in a copy of the project, a sentence without its full stop.
    """
    what = [f'Guardrail "{command}" failed with {exit_text}.', f"{missing}." if missing else ""]
    return _with_output(what, hint, log, output, limit)


def verification_failure(
    command: str, reason: str, hint: str, log: str, output: CommandOutput, limit: int, missing: str = ""
) -> str:
    """Feedback about a failed command that verifies a task."""
    what = [f'Verification by "{command}" failed: {reason}.', f"{missing}." if missing else ""]
    return _with_output(what, hint, log, output, limit)


def old_tests_failure(what: str, log: str, output: CommandOutput, limit: int) -> str:
    """Feedback about tests that fail as they were when the run started."""
    return _with_output([what], "", log, output, limit)


def _with_output(what: list[str], hint: str, log: str, output: CommandOutput, limit: int) -> str:
    safe = replace(output, head=neutralise(output.head), tail=neutralise(output.tail))
    shown = shorten(safe, limit)
    lines = [line for line in what if line]
    if hint:
        lines.append(f"Hint: {hint}")
    if log:
        lines.append(f"Output file: {log}")
    lines += [heading("Output", is_cut=shown.is_cut), shown.text]
    return "\n".join(lines)


def heading(name: str, *, is_cut: bool) -> str:
    """The line above output or a diff."""
    return f"{name} (truncated):" if is_cut else f"{name}:"


def truncate(text: str, limit: int) -> str:
    """The start of the text: at most `limit` characters (0: all), with a mark if anything was cut."""
    if limit <= 0 or len(text) <= limit:
        return text
    return text[: limit - len(TRUNCATED)] + TRUNCATED if limit > len(TRUNCATED) else text[:limit]
