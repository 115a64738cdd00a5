"""A judge that reads the diff strictly, in place of a model. Standard library only; starts fast.

    python -I -S judge.py MANNER PROMPT

It trusts only the diff between the boundaries of its prompt: not the final message, comments, or text addressed to
it. A criterion it cannot decide is not met. With the manner `quotes` it repeats the added lines before it answers, as
talkative models do, which makes the answer invalid.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable

Diff = dict[str, "File"]


class File:
    """A file in the diff: its new lines, and whether it is new or deleted."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.added: list[str] = []
        self.is_new = self.is_gone = False


def main(manner: str, prompt: str) -> int:
    diff = read_diff(between(prompt, "DIFF"))
    verdicts = []
    for number, text in enumerate(criteria(prompt), 1):
        met = any(text.startswith(words) and rule(diff) for words, rule in RULES.items())
        verdicts.append(
            {"criterion": number, "met": met, "reason": "the diff shows it" if met else "not in the diff"}
        )
    if manner == "quotes":
        print("These lines were added:")
        for file in diff.values():
            print("\n".join(file.added))
    print(json.dumps({"verdicts": verdicts}))
    return 0


# ---- the prompt ----


def criteria(prompt: str) -> list[str]:
    """Return the numbered lines of the first list."""
    part = prompt.partition("The criteria:\n")[2].partition("\n\n")[0]
    return re.findall(r"^\d+\. (.*)$", part, re.MULTILINE)


def between(prompt: str, name: str) -> str:
    """Return the text between the boundaries, whose token the judged work cannot know."""
    found = re.search(r"^BEGIN FINAL MESSAGE ([0-9a-f]{32})$", prompt, re.MULTILINE)
    if found is None:
        return ""
    after = prompt.partition(f"\nBEGIN {name} {found[1]}\n")[2]
    return after.partition(f"\nEND {name} {found[1]}")[0]


def read_diff(text: str) -> Diff:
    files: Diff = {}
    file, in_hunk = File(), False
    for line in text.splitlines():
        if heading := re.fullmatch(r"diff --git a/(.+) b/(.+)", line):
            file = files[heading[2]] = File()
            in_hunk = False
        elif line.startswith("@@ "):
            in_hunk = True
        elif not in_hunk:
            file.is_new = file.is_new or line.startswith("new file mode")
            file.is_gone = file.is_gone or line.startswith("deleted file mode")
        elif line.startswith(("+", " ")):
            file.lines.append(line[1:])
            if line.startswith("+"):
                file.added.append(line[1:])
    return files


# ---- the criteria ----


def returns(name: str, operator: type[ast.operator]) -> Callable[[Diff], bool]:
    """Return a rule: calc.py contains only functions, one of which does exactly this."""

    def rule(diff: Diff) -> bool:
        functions = module(diff, "calc.py")
        found = [each for each in functions or () if isinstance(each, ast.FunctionDef) and each.name == name]
        is_plain = all(isinstance(each, ast.FunctionDef) for each in functions or ())
        return is_plain and len(found) == 1 and is_operation(found[0], operator)

    return rule


def module(diff: Diff, path: str) -> list[ast.stmt] | None:
    file = diff.get(path)
    if file is None or file.is_gone:
        return None
    try:
        return ast.parse("\n".join(file.lines)).body
    except SyntaxError:
        return None


def is_operation(function: ast.FunctionDef, operator: type[ast.operator]) -> bool:
    names = [argument.arg for argument in function.args.args]
    if len(function.body) != 1 or len(names) != 2 or function.decorator_list:
        return False
    (body,) = function.body
    return (
        isinstance(body, ast.Return)
        and isinstance(body.value, ast.BinOp)
        and isinstance(body.value.op, operator)
        and [getattr(side, "id", "") for side in (body.value.left, body.value.right)] == names
    )


def has_notes(diff: Diff) -> bool:
    return "NOTES.md" in diff and "add adds, mul multiplies." in diff["NOTES.md"].added


def nothing_else(diff: Diff) -> bool:
    def is_allowed(path: str, file: File) -> bool:
        is_test = file.is_new and re.fullmatch(r"tests/test_\w+\.py", path) is not None
        return is_test or (path in ("calc.py", "NOTES.md") and not file.is_gone)

    return all(is_allowed(path, file) for path, file in diff.items())


def tests_mul(diff: Diff) -> bool:
    """Return whether a test compares mul of two numbers with their product, which differs from their sum."""
    functions = [
        each for each in module(diff, "tests/test_mul.py") or () if isinstance(each, ast.FunctionDef)
    ]
    return any(
        function.name.startswith("test_")
        and not function.decorator_list
        and any(map(is_product, function.body))
        for function in functions
    )


def is_product(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assert):
        return False
    found = re.fullmatch(r"(?:calc\.)?mul\((\d+), (\d+)\) == (\d+)", ast.unparse(statement.test))
    if found is None:
        return False
    a, b, result = map(int, found.groups())
    return a * b == result != a + b


RULES: dict[str, Callable[[Diff], bool]] = {
    "calc.py: add(a, b) returns a + b": returns("add", ast.Add),
    "calc.py: mul(a, b) returns a * b": returns("mul", ast.Mult),
    "NOTES.md has the line": has_notes,
    "Nothing else is changed": nothing_else,
    "tests/test_mul.py: a new test": tests_mul,
}
"""Rules by the start of a criterion; any other criterion is not met."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[-1]))
