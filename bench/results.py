"""The kept raw results: one JSON file per suite, with everything needed to judge and repeat them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ralph

PLACE = Path(__file__).parent / "results"
NO_PEER = "–"


@dataclass(frozen=True, slots=True)
class Kept:
    """The results of one run of a suite, with date, machine, versions and the command to repeat it."""

    suite: str
    date: str
    command: str
    machine: dict[str, str]
    versions: dict[str, str]
    results: list[dict[str, Any]]


def keep(suite: str, command: str, versions: dict[str, str], results: list[dict[str, Any]]) -> Path:
    PLACE.mkdir(exist_ok=True)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    kept = Kept(suite, date, command, machine(), _tools() | versions, results)
    path = PLACE / f"{suite}.json"
    path.write_text(json.dumps(asdict(kept), indent=1, ensure_ascii=False) + "\n")
    return path


def kept(suite: str) -> Kept | None:
    path = PLACE / f"{suite}.json"
    return Kept(**json.loads(path.read_text())) if path.exists() else None


def machine() -> dict[str, str]:
    """Describe this machine, without its name or any path."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "memory": f"{memory:.0f} GB",
        "system": _system(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _system() -> str:
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.system()} {platform.release()}"
    except (OSError, KeyError):
        return platform.platform()


def _tools() -> dict[str, str]:
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout
    return {"ralph": ralph.__version__, "python": platform.python_version(), "git": git.split()[2]}
