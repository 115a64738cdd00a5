"""Reading and writing the text of `tasks.json`, the task list of a PRD loop."""

from __future__ import annotations

import json
from typing import Any

from ralph.core.model import Prd
from ralph.errors import RalphError
from ralph.files.jsonfile import parse_any, parse_strictly
from ralph.stories import rules

TASKS = "tasks.json"
MAX_TASKS = 4 << 20


def text_of(data: bytes | None, path: str) -> str:
    if data is None:
        raise RalphError(
            f"{path} is missing, not a regular file, or larger than {MAX_TASKS >> 20} MB.",
            "`ralph prd init --force` creates missing files.",
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RalphError(f"{path} is not UTF-8 text.") from None


def parsed(text: str) -> Any:
    """Parse a task list. Values that could not be written back are refused."""
    board = parse_strictly(text)
    dumped(board).encode()
    return board


def valid(text: str, path: str, prd: Prd) -> dict[str, Any]:
    """A task list that a loop can work on. All problems are one error."""
    board = load(text, path)
    found = rules.schema_problems(board)
    if not found and not prd.skip_review:
        found = rules.invariant_problems(board, prd.review_cap)
    if found:
        more = f" And {len(found) - 1} more." if len(found) > 1 else ""
        raise RalphError(f"{path}: {found[0]}{more}", _advice(board))
    checked: dict[str, Any] = board
    return checked


def _advice(board: Any) -> str:
    """A hint for a task list with problems."""
    listed = board.get("userStories") if isinstance(board, dict) else None
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and each.get("passes") is True and each.get("reviewStatus", "") is None:
            return (
                "A story finished with --skip-review needs --skip-review again. To have it reviewed,"
                ' set passes to false and reviewStatus to "needs_review".'
            )
    return "`ralph prd status` lists all problems."


def load(text: str, path: str) -> Any:
    """Parse a task list that may be written by hand. Errors name the line."""
    try:
        board = parse_any(text, path)
        dumped(board).encode()
        return board
    except json.JSONDecodeError as error:
        raise RalphError(f"{path}:{error.lineno}: not valid JSON: {error.msg}.") from None
    except UnicodeEncodeError:
        raise RalphError(f"{path}: a string contains half of a surrogate pair.") from None
    except ValueError:
        raise RalphError(f"{path}: a number is too large.") from None
    except RecursionError:
        raise RalphError(f"{path}: nested too deeply.") from None


def dumped(board: dict[str, Any]) -> str:
    return json.dumps(board, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
