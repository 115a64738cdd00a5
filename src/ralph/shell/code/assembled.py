"""Resolves text that a program assembles from numbers, hex digits, pieces, variables or the home directory.

Code is rewritten so that it contains the result as a string, as far as that is possible without running it.
"""

from __future__ import annotations

import re

_HOME = (
    r"(?:pathlib\.)?Path\.home\(\)|os\.environ\[['\"]HOME['\"]\]|os\.environ\.get\(['\"]HOME['\"]\)|os\.getenv\(['\"]HOME['\"]\)"
    r"|process\.env\.HOME|process\.env\[['\"]HOME['\"]\]|require\(['\"](?:node:)?os['\"]\)\.homedir\(\)|(?:os\.)?homedir\(\)"
    r"|ENV\[['\"]HOME['\"]\]|ENV\.fetch\(['\"]HOME['\"]\)|\$ENV\{['\"]?HOME['\"]?\}|ENVIRON\[['\"]HOME['\"]\]|Dir\.home"
    r"|getenv\(['\"]HOME['\"]\)|\$_SERVER\[['\"]HOME['\"]\]|os\.path\.expanduser\(['\"]~['\"]\)|Path\(['\"]~['\"]\)\.expanduser\(\)"
)
_HERE = r"os\.getcwd\(\)|Path\.cwd\(\)|process\.cwd\(\)|Dir\.pwd|getcwd\(\)|cwd\(\)"
_CALL = r"(?:os\.path\.)?expanduser\(\s*(['\"][^'\"]*['\"])\s*\)|\bPath\(\s*(['\"][^'\"]*['\"])\s*\)|File\.expand_path\(\s*(['\"][^'\"]*['\"])\s*\)"
_NUMBER = r"(?:0x[0-9a-fA-F]{1,2}|\d{1,3})"
_NUMBERS = rf"[\[(]\s*(?:['\"][cCU]\*['\"]\s*,\s*)?({_NUMBER}(?:\s*,\s*{_NUMBER})*)\s*,?\s*[\])]"
_MAKES_TEXT = r"\bchr\b|chr\(|fromCharCode|fromCodePoint|bytes|bytearray|pack|Buffer|Uint8Array|decode"
_MAKES_HEX = r"fromhex|unhexlify|hex2bin|['\"]hex['\"]|H\*|hex_codec"
_HEX = r"(['\"])((?:[0-9a-fA-F]{2}){3,})\1"
_ASSIGNED = r"(?:^|[\s;{(])(?:my |let |const |var |local )?([$@]?[A-Za-z_]\w*)\s*=\s*(\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')\s*(?=[;\n)}]|$)"
_UNDONE = (
    r"(?i)(?:\b(?:exec|eval|system|popen|execSync|spawnSync|run|call|check_output|shell_exec|passthru|Function)\b[^\n;]{0,200}?)"
    r"(?:chr\(\s*ord|ord\([^)]*\)\s*[-+^]|charCodeAt\([^)]*\)\s*[-+^]|decompress|gzinflate|gzuncompress|inflateSync|gunzipSync|marshal\.loads|pickle\.loads)"
)
MAX_VARIABLES = 12


def is_undone(code: str) -> bool:
    """Whether the code runs text that it first unpacks or computes character by character."""
    return bool(re.search(_UNDONE, code))


def written_out(code: str, home: str) -> str:
    """Return the code with assembled strings written out."""
    code = re.sub(r"__import__\(\s*['\"]([\w.]+)['\"]\s*\)", r"\1", code)
    code = re.sub(rf"[$#]?\{{\s*(?:{_HOME})\s*\}}", home, code)
    code = re.sub(_HOME, f'"{home}"', code)
    code = re.sub(_HERE, '"."', code)
    code = re.sub(_CALL, lambda found: next(group for group in found.groups() if group), code)
    if re.search(_MAKES_TEXT, code):
        code = re.sub(_NUMBERS, _from_numbers, code)
        code = re.sub(
            r"(?:chr|String\.from(?:CharCode|CodePoint))\(?\s*(\"(?:[^\"\\]|\\.)*\")\s*\)?", r"\1", code
        )
        code = re.sub(
            r"(?:chr|String\.from(?:CharCode|CodePoint)) *\(?\s*(\d{1,3})\b\s*\)?", _from_numbers, code
        )
    if re.search(_MAKES_HEX, code):
        code = re.sub(_HEX, _from_hex, code)
    return _without_variables(code)


def _from_numbers(found: re.Match[str]) -> str:
    numbers = [int(each, 0) if each.startswith("0x") else int(each) for each in re.findall(_NUMBER, found[1])]
    if not all(9 <= number < 127 for number in numbers):
        return found[0]
    return _quoted("".join(map(chr, numbers)))


def _from_hex(found: re.Match[str]) -> str:
    made = bytes.fromhex(found[2]).decode("latin-1")
    return _quoted(made) if made.isprintable() else found[0]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _without_variables(code: str) -> str:
    """Replace variables that hold a string with that string."""
    for found in list(re.finditer(_ASSIGNED, code))[:MAX_VARIABLES]:
        name, value = found[1], found[2]
        bare, inside = re.escape(name.lstrip("$@")), value[1:-1].replace("\\", "\\\\")
        code = re.sub(rf"[$#]?\{{{bare}\}}", inside, code)
        sigil = r"\$" if name.startswith("$") else r"(?<![\w.$'\"-])"
        glued = rf"(?<=[+.,(=/ ]){sigil}{bare}\b(?=\s*(?:[+.,)/;]|\"|'|$))(?!\s*=[^=])"
        code = re.sub(glued, value.replace("\\", "\\\\"), code)
        if name.startswith("$"):
            code = re.sub(rf"\${bare}\b(?!\s*=)", inside, code)
    return code


def others(words: list[str], code: str) -> list[str]:
    """Return other texts that a list of strings can become: joined, reversed, rotated, or with parts replaced."""
    made: list[str] = []
    if len(words) > 1 and re.search(r"join|implode", code):
        made += ["".join(words), "/".join(words)]
    if re.search(r"\[::-1\]|revers|strrev|\brev\b", code):
        made += [word[::-1] for word in words]
    if re.search(r"rot_?13", code):
        import codecs

        made += [codecs.encode(word, "rot13") for word in words]
    for old, new in re.findall(
        r"(?:replace|gsub|tr|str_replace)\(\s*['\"]([^'\"]+)['\"]\s*,\s*['\"]([^'\"]*)['\"]", code
    ):
        made += [word.replace(old, new) for word in words if old in word and word != old]
    return made
