"""Which programs run code of another language, and which of their options carry it."""

from __future__ import annotations

# Program: options whose value is code, then those whose value is none.
LANGUAGES = {
    "python": ("-c", "-W -X -m"),
    "pypy": ("-c", "-W -X -m"),
    "ipython": ("-c", ""),
    "perl": ("-e -E", "-I -M -m"),
    "ruby": ("-e", "-r -I"),
    "irb": ("-e", ""),
    "node": ("-e -p --eval --print -pe", "-r --require --import --loader"),
    "nodejs": ("-e -p --eval --print -pe", "-r --require"),
    "bun": ("-e --eval", ""),
    "deno": ("eval", ""),
    "tsx": ("-e --eval", ""),
    "ts-node": ("-e --eval", ""),
    "php": ("-r", "-d -c"),
    "lua": ("-e", "-l"),
    "luajit": ("-e", "-l"),
    "osascript": ("-e", "-l"),
    "rscript": ("-e", ""),
    "r": ("-e", ""),
    "julia": ("-e -E --eval", ""),
    "groovy": ("-e", ""),
    "elixir": ("-e --eval", ""),
    "pwsh": ("-c -command -SimpleCommand -C", "-f -File"),
    "powershell": ("-c -command -SimpleCommand -C", "-f -File"),
    "expect": ("-c", ""),
    "tclsh": ("", ""),
    "swift": ("-e", ""),
    "jshell": ("", ""),
    "guile": ("-c", "-l -L"),
    "sbcl": ("--eval", "--load"),
    "scala": ("-e", ""),
    "clojure": ("-e --eval", ""),
    "clj": ("-e --eval", ""),
    "ghc": ("-e", ""),
    "octave": ("--eval", ""),
    "racket": ("-e", ""),
    "raku": ("-e", ""),
    "crystal": ("eval", ""),
    "emacs": ("--eval -eval --execute", "-l --load -f --funcall -L"),
    "awk": ("", "-F -v -f"),
    "gawk": ("", "-F -v -f"),
    "mawk": ("", "-F -v -f"),
    "nawk": ("", "-F -v -f"),
}
AWKS = ("awk", "gawk", "mawk", "nawk")


def language(program: str) -> str:
    """Which language a program speaks, "" if it is no interpreter."""
    name = program.lower()
    if name not in LANGUAGES:
        name = name.rstrip("0123456789.")
    return name if name in LANGUAGES else ""
