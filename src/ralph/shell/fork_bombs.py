"""Detects commands that start themselves again and again."""

from __future__ import annotations

from ralph.shell.parser import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tree_sitter import Node


def is_bomb(name: str, body: Node) -> bool:
    """Whether a function calls itself twice at once, in a pipeline or in the background."""
    return any(kind in ("pipeline", "&") for kind in _calls(body).get(name, ()))


def is_endless_start(condition: Node, body: Node) -> bool:
    """Whether an endless loop starts a background process in each round."""
    if text_of(condition).strip() not in ("true", ":", "((1))", "[ 1 ]"):
        return False
    calls = _calls(body)
    return any("&" in kinds for kinds in calls.values()) and not {"sleep", "wait", "read"} & set(calls)


def _calls(node: Node) -> dict[str, list[str]]:
    """Return the commands inside a statement, each with the constructs it appears in."""
    found: dict[str, list[str]] = {}
    stack = [(node, "")]
    while stack:
        each, context = stack.pop()
        if each.type == "command_name":
            found.setdefault(text_of(each), []).append(context)
        for number, child in enumerate(each.children):
            behind = each.children[number + 1].type if number + 1 < len(each.children) else ""
            inside = "pipeline" if each.type == "pipeline" else "&" if behind == "&" else context
            stack.append((child, inside))
    return found
