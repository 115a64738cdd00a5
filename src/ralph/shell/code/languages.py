"""Programs that run code in another language, and the options that contain it."""

from __future__ import annotations

SHELLS = frozenset(
    ["sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "fish", "csh", "tcsh", "yash", "elvish"]
)


class Language:
    """The options of an interpreter. A program with `verbs` runs a file after one of them: `deno run x.ts`."""

    __slots__ = ("code", "dry", "script", "valued", "verbs")

    def __init__(self, code: str, valued: str = "", script: str = "", dry: str = "", verbs: str = "") -> None:
        self.code = code.split()
        """Options whose value is code."""
        self.valued = valued.split()
        """Options whose value is not code."""
        self.script = script.split()
        """Options whose value is the file to run."""
        self.dry = dry.split()
        """Options that prevent running the file."""
        self.verbs = verbs.split()


_PYTHON = Language("-c", "-W -X")
_NODE = Language(
    "-e -p --eval --print -pe",
    "-r --require --import --loader --experimental-loader -C --conditions",
    dry="-c --check",
)
_TYPESCRIPT = Language("-e -p --eval --print", "-r --require --import -C --cwd -P --project -O")
_EVAL = Language("-e --eval")
_ONE = Language("-e")
_POWERSHELL = Language("-c -command -Command -C", "-f -File")
_LUA = Language("-e", "-l")
_AWK = Language("", "-F -v", "-f")

LANGUAGES = {
    "python": _PYTHON,
    "pypy": _PYTHON,
    "ipython": Language("-c"),
    "perl": Language("-e -E", "-I -M -m", dry="-c -wc"),
    "ruby": Language("-e", "-r -I -C -E", dry="-c -wc"),
    "irb": _ONE,
    "node": _NODE,
    "nodejs": _NODE,
    "bun": Language("-e --eval -p --print", verbs="run"),
    "deno": Language("eval", verbs="run"),
    "go": Language("", "-tags -mod -modfile -exec", verbs="run"),
    "tsx": _TYPESCRIPT,
    "ts-node": _TYPESCRIPT,
    "php": Language("-r", "-d -c -z", "-f --file", "-l"),
    "lua": _LUA,
    "luajit": _LUA,
    "osascript": _LUA,
    "rscript": _ONE,
    "r": _ONE,
    "julia": Language("-e -E --eval"),
    "groovy": _ONE,
    "elixir": _EVAL,
    "pwsh": _POWERSHELL,
    "powershell": _POWERSHELL,
    "expect": Language("-c"),
    "tclsh": Language(""),
    "swift": _ONE,
    "jshell": Language(""),
    "guile": Language("-c", "-l -L"),
    "sbcl": Language("--eval", "--load"),
    "scala": _ONE,
    "clojure": _EVAL,
    "clj": _EVAL,
    "ghc": _ONE,
    "octave": Language("--eval"),
    "racket": _ONE,
    "raku": _ONE,
    "crystal": Language("eval"),
    "emacs": Language("--eval -eval --execute", "-l --load -f --funcall -L"),
    "awk": _AWK,
    "gawk": _AWK,
    "mawk": _AWK,
    "nawk": _AWK,
}
AWKS = ("awk", "gawk", "mawk", "nawk")


def language(program: str) -> str:
    """Return the language that a program interprets, or "" if it is not an interpreter."""
    name = program.lower()
    if name not in LANGUAGES:
        name = name.rstrip("0123456789.")
    return name if name in LANGUAGES else ""
