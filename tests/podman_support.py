"""A container engine, and an image made from a few programs of this machine, so that nothing is pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import debian

ENGINE = os.environ.get("RALPH_TEST_ENGINE", "podman")
"""`podman`, which needs no daemon, or `docker` if its daemon is running."""

IMAGE = f"localhost/ralph-test:{os.getpid()}"
"""Each test worker has its own image, and removes it."""

PROGRAMS = (
    "sh",
    "cat",
    "echo",
    "git",
    "id",
    "ls",
    "mkdir",
    "seq",
    "setsid",
    "sleep",
    "touch",
    "true",
    "python3",
)
MODEST = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
"""
"""For machines where root cannot raise limits, or with both versions of cgroups."""


@contextmanager
def with_image(place: Path) -> Iterator[Path | None]:
    """Set up the engine with the image. Yields the settings that podman needs here, or None."""
    for program in ("podman", "runc", "catatonit") if ENGINE == "podman" else (ENGINE,):
        debian.program(program)
    with tarfile.open(place / "image.tar", "w") as archive:
        files = _files()
        for above in sorted({parent for path in files for parent in path.parents}):
            archive.add(above, recursive=False)
        for path in files:
            archive.add(path, recursive=path.is_dir() and not path.is_symlink())
    settings = place / "containers.conf"
    settings.write_text(MODEST)
    why = ""
    for chosen in (None, settings):
        env = os.environ | ({"CONTAINERS_CONF": str(chosen)} if chosen else {})
        _engine(env, "import", str(place / "image.tar"), IMAGE)
        why = _engine(
            env, "run", "--rm", "--init", "--network", "none", "--memory", "64m", IMAGE, "/bin/true"
        )
        if not why:
            break
    else:
        debian.missing(f"{ENGINE} does not work here: {why}")
    yield chosen
    _engine(env, "rmi", "--force", IMAGE)


def _engine(env: dict[str, str], *words: str) -> str:
    """Run the engine and return the problem, if any."""
    done = subprocess.run([ENGINE, *words], env=env, capture_output=True, text=True, timeout=300)
    return done.stderr[-500:] or "it fails" if done.returncode else ""


def _files() -> set[Path]:
    """Return the programs and their libraries with their paths, including all links on the way."""
    found = {linked for linked in map(Path, ("/bin", "/lib", "/lib64")) if linked.is_symlink()}
    for name in PROGRAMS:
        program = shutil.which(name, path="/usr/bin:/bin") or debian.missing(f"{name} is not installed")
        found |= _steps(Path(program)) | _libraries(Path(program).resolve())
    asked = "import os, _ctypes; print(os.path.dirname(os.__file__), _ctypes.__file__)"
    done = subprocess.run(["/usr/bin/python3", "-c", asked], capture_output=True, text=True, check=True)
    library, extension = done.stdout.split()
    return found | {Path(library)} | _libraries(Path(extension))


def _libraries(program: Path) -> set[Path]:
    words = subprocess.run(["ldd", program], capture_output=True, text=True).stdout.split()
    return {step for word in words if word.startswith("/") for step in _steps(Path(word))}


def _steps(path: Path) -> set[Path]:
    """Return a file and the links that lead to it."""
    here = path.parent.resolve() / path.name
    return {here} | (_steps(here.parent / here.readlink()) if here.is_symlink() else set())
