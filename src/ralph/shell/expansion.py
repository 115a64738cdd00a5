"""What `$name` and `${name…}` stand for, as far as that is known."""

from __future__ import annotations

from ralph.shell.words import EXPANDED, SECRET, UNKNOWN, UNSET, Piece, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralph.shell.reader import ShellReader
    from ralph.shell.state import ShellContext

_USUAL = {
    "IFS": " \t\n",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "SHELL": "/bin/bash",
    "BASH": "/bin/bash",
    "OSTYPE": "linux-gnu",
    "0": "bash",
    "#": "0",
    "?": "0",
    "-": "hB",
    "PPID": UNKNOWN + "PPID",
    "$": UNKNOWN + "$$",
    "!": UNKNOWN,
    "_": UNKNOWN,
    "RANDOM": UNKNOWN,
    "SECONDS": UNKNOWN,
    "HOSTNAME": UNKNOWN,
    "UID": UNKNOWN,
    "EUID": UNKNOWN,
    "LINENO": UNKNOWN,
    "REPLY": UNKNOWN,
}
_STATE = {"RALPH_STATE_DIR": "/.local/state/ralph", "XDG_STATE_HOME": "/.local/state"}
_SECRET_PARTS = words_of(
    "TOKEN SECRET PASSWORD PASSWD API_KEY APIKEY ACCESS_KEY PRIVATE_KEY CREDENTIAL _PAT DATABASE_URL AUTH_KEY"
)


def is_secret_name(name: str) -> bool:
    upper = name.upper()
    return any(part in upper for part in _SECRET_PARTS) and not upper.endswith(("_FILE", "_PATH", "TOKENS"))


def environment(name: str, context: ShellContext) -> str:
    """A variable that the command itself has not set."""
    if name == "HOME":
        return context.home
    if is_secret_name(name):
        return SECRET
    if name in _STATE and name not in context.env:
        return context.home + _STATE[name]
    if name in context.env:
        return context.env[name]
    if name in ("USER", "LOGNAME"):
        return context.home.rpartition("/")[2]
    return _USUAL.get(name, UNSET)


def expand(reader: ShellReader, text: str) -> list[Piece]:
    """`$name`, `${name}` and most of what braces can do to it."""
    if not text.startswith("${"):
        return _parameter(reader, text[1:])
    inner = text[2:-1]
    if inner.startswith("#") and len(inner) > 1:
        return [(UNKNOWN, EXPANDED)]
    is_indirect = inner.startswith("!")
    name, rest = name_of(inner[is_indirect:])
    if is_indirect:
        target = reader.variable(name)
        value = UNKNOWN if UNKNOWN in target else reader.variable(target)
        return [(value, EXPANDED)]
    if rest.startswith("["):
        index, _, rest = rest[1:].partition("]")
        if index in ("@", "*") and not rest:
            items = reader.state.arrays.get(name)
            return [(" ".join(items), EXPANDED)] if items is not None else [(reader.variable(name), EXPANDED)]
        items = reader.state.arrays.get(name, [])
        value = items[int(index)] if index.isdigit() and int(index) < len(items) else UNKNOWN
        return [(_changed(reader, value, rest), EXPANDED)]
    if not rest:
        return _parameter(reader, name)
    value = "".join(part for part, _ in _parameter(reader, name))
    return [(_changed(reader, value, rest, name), EXPANDED)]


def _parameter(reader: ShellReader, name: str) -> list[Piece]:
    positional = reader.state.positional
    if name in ("@", "*"):
        return [(" ".join(positional) if positional is not None else UNKNOWN, EXPANDED)]
    if name.isdigit() and name != "0":
        if positional is None:
            return [(UNKNOWN, EXPANDED)]
        number = int(name) if len(name) < 5 else 9999
        return [(positional[number - 1] if number <= len(positional) else "", EXPANDED)]
    return [(reader.variable(name), EXPANDED)]


def name_of(text: str) -> tuple[str, str]:
    end = 0
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    if not end and text:
        end = 1
    return text[:end], text[end:]


def _changed(reader: ShellReader, value: str, change: str, name: str = "") -> str:
    """`:-`, `:=`, `:+`, `:?`, substrings, prefixes and suffixes, replacing, upper and lower case."""
    if not change:
        return value
    is_there = bool(value) and value != UNSET
    if change.startswith((":-", "-", ":=", "=")):
        default = _text(reader, change.lstrip(":")[1:])
        if not is_there and "=" in change[:2] and name:
            reader.assign(name, default)
        return value if is_there else default
    if change.startswith((":+", "+")):
        return _text(reader, change.lstrip(":")[1:]) if is_there and value != SECRET else ""
    if change.startswith((":?", "?")):
        return value if is_there else UNKNOWN
    if UNKNOWN in value or UNSET in value:
        return value
    if change.startswith(":"):
        return _substring(value, change[1:])
    if change[:1] in ("#", "%"):
        return _trimmed(value, change[0], change[1:2] == change[0], _text(reader, change.lstrip(change[0])))
    if change.startswith("/"):
        return _replaced(reader, value, change[1:])
    if change.startswith(("^", ",")):
        return value.upper() if change[0] == "^" else value.lower()
    if change.startswith("@E"):
        from ralph.shell.words import ansi_c

        return ansi_c(value)
    return value if change.startswith("@") else UNKNOWN


def _text(reader: ShellReader, text: str) -> str:
    """The word behind an operator, expanded."""
    if not text or not any(char in text for char in "$`\"'\\~"):
        return text
    quoted = text if text[:1] in "\"'" else '"' + text.replace('"', '\\"') + '"'
    if text.startswith("~"):
        quoted = text
    found: list[str] = []
    from ralph.shell.parser import parse
    from ralph.shell.syntax import words

    for node in parse(f": {quoted}").named_children:
        found += [word for child in node.named_children[1:] for word in words(reader, child)]
    return " ".join(found)


def _substring(value: str, change: str) -> str:
    start, _, length = (part.strip() for part in change.partition(":"))
    try:
        first = int(start or 0)
        end = None if not length else int(length) if int(length) < 0 else first + int(length)
    except ValueError:
        return UNKNOWN
    return value[first:] if end is None else value[first:end]


def _trimmed(value: str, side: str, is_longest: bool, pattern: str) -> str:
    from fnmatch import fnmatchcase

    cuts = range(len(value) + 1)
    if side == "#":
        order = reversed(cuts) if is_longest else iter(cuts)
        return next((value[cut:] for cut in order if fnmatchcase(value[:cut], pattern)), value)
    order = iter(cuts) if is_longest else reversed(cuts)
    return next((value[:cut] for cut in order if fnmatchcase(value[cut:], pattern)), value)


def _replaced(reader: ShellReader, value: str, change: str) -> str:
    is_all = change.startswith("/")
    pattern, _, new = change[is_all:].partition("/")
    pattern, new = _text(reader, pattern), _text(reader, new)
    if any(char in pattern for char in "*?["):
        return UNKNOWN
    return value.replace(pattern, new) if is_all else value.replace(pattern, new, 1)
