"""Python: every environment that the project is installed into gets a layer, whose entries lead to the copy."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ralph.environments.as_started import environments_as_started
from ralph.environments.base import Copy, NotPrepared, Tools, inside, repointed_list
from ralph.environments.python_install import (
    ToInstall,
    build_into,
    is_shared,
    own_environment,
    to_install,
)
from ralph.environments.python_installed import (
    RECORD,
    PythonEnvironment,
    import_roots,
    in_use,
    leading_to,
    linked_venvs,
    of_venv,
    outside,
    read,
    venvs_in,
)
from ralph.environments.python_layer import is_half_made, is_untouched, make_layer
from ralph.environments.python_requirements import version_files
from ralph.environments.shared import digest

name = "Python"
sources: Sequence[str] = (".py",)

_COMPILED = (".so", ".pyd")


def detect(copy: Copy, environment: Mapping[str, str]) -> bool:
    return bool(_needed(copy, environment))


def _is_needed(copy: Copy, installed: PythonEnvironment) -> bool:
    """Whether an environment lies in the user's checkout or leads there."""
    return inside(installed.prefix, copy.origin) is not None or bool(leading_to(copy, installed))


def prepare_active(copy: Copy, tools: Tools) -> None:
    """Make the layers that `ralph.setup` needs: it must not install into an active environment of the user."""
    environment = tools.environment
    active = {each.prefix for each in outside(environment)}
    named = {
        environment.get("VIRTUAL_ENV", ""),
        *map(os.path.dirname, environment.get("PATH", "").split(os.pathsep)),
    }
    for installed in _needed(copy, environment):
        layer = _layer_of(copy, installed)
        is_active = (
            installed.prefix in active or str(layer) in named
        )  # variables name layers before they are made
        if is_active and not os.path.lexists(layer):
            make_layer(copy, installed, layer, installed.prefix)


def prepare(copy: Copy, tools: Tools) -> None:
    needed = _needed(copy, tools.environment)
    if not needed:
        return
    _copy_version_files(copy)
    for installed in needed:
        layer, lacking = _layer_of(copy, installed), to_install(copy, installed)
        if is_half_made(layer) or (lacking is not None and is_untouched(layer, installed.prefix)):
            shutil.rmtree(layer)
        if not os.path.lexists(layer):
            _make(copy, installed, layer, lacking, tools)


def given(copy: Copy, environment: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """What lies where layers belong, by its relative path, to recognise it later."""
    found = {}
    for installed in _needed(copy, environment):
        path = _layer_of(copy, installed)
        if (
            os.path.lexists(path)
            and path.is_relative_to(copy.top)
            and not _is_same_link(path, installed.prefix)
        ):
            status = os.lstat(path)
            found[str(path.relative_to(copy.top))] = (status.st_dev, status.st_ino)
    return found


def _is_same_link(path: Path, other: Path) -> bool:
    return path.is_symlink() and other.is_symlink() and os.readlink(path) == os.readlink(other)


def _make(
    copy: Copy, installed: PythonEnvironment, layer: Path, lacking: ToInstall | None, tools: Tools
) -> None:
    try:
        seen, below = _below(copy, installed, lacking, tools)
        make_layer(seen, below, layer, installed.prefix)
        build_into(seen, below, layer, tools)
    except NotPrepared:
        shutil.rmtree(layer, ignore_errors=True)
        make_layer(copy, installed, layer, installed.prefix)  # so that an agent can work on what is wrong
        raise
    except BaseException:
        shutil.rmtree(layer, ignore_errors=True)
        raise


def _below(
    copy: Copy, installed: PythonEnvironment, lacking: ToInstall | None, tools: Tools
) -> tuple[Copy, PythonEnvironment]:
    """What a layer lies on: the user's environment, or a shared one if the copy requires more."""
    if lacking is None:
        return copy, installed
    try:
        return own_environment(copy, installed, lacking, tools)
    except NotPrepared as problem:
        if lacking.is_changed:
            raise
        tools.tell(f"{problem} Until then, checks use {installed.prefix} as it is.")
        return copy, installed


def _needed(copy: Copy, environment: Mapping[str, str]) -> list[PythonEnvironment]:
    found = [each for each in in_use(copy, environment) if _is_needed(copy, each)]
    return environments_as_started(copy, found)


def _layer_of(copy: Copy, installed: PythonEnvironment) -> Path:
    """Where the layer of an environment lies: at its place in the copy, or outside the tree."""
    relative = inside(installed.prefix, copy.origin)
    if relative is not None:
        return copy.top / relative
    return copy.own / "python" / digest([str(installed.prefix)])[:8]


def _copy_version_files(copy: Copy) -> None:
    """Copy the files that a build has written the version into, which git ignores."""
    for directory in dict.fromkeys((copy.directory, copy.top)):
        for path in version_files(directory):
            source = copy.origin / path.relative_to(copy.top)
            if source.is_file() and not path.exists() and path.parent.is_dir():
                shutil.copyfile(source, path)


# ---- variables ----


def variables(copy: Copy, environment: Mapping[str, str]) -> Mapping[str, str]:
    found = {}
    if value := environment.get("PYTHONPATH"):
        found["PYTHONPATH"] = repointed_list(copy, value)
    layers = {instead_of: layer for layer, instead_of in _layers(copy)}
    active = environment.get("VIRTUAL_ENV")
    if active:
        found["VIRTUAL_ENV"] = str(layers.get(Path(active), copy.moved(active)))
    path = environment.get("PATH", os.defpath).split(os.pathsep)
    found["PATH"] = os.pathsep.join(_programs(copy, _by_directory(layers, environment), path))
    if layers or any((venv / RECORD).is_file() for venv in venvs_in(copy.top)):
        found["PYTHONDONTWRITEBYTECODE"] = (
            "1"  # Python would write that of packages into the user's environment
        )
    return {key: value for key, value in found.items() if environment.get(key) != value}


def _by_directory(layers: Mapping[Path, Path], environment: Mapping[str, str]) -> dict[Path, Path]:
    """The layers by the directories with the programs that they replace."""
    found = {prefix / "bin": layer for prefix, layer in layers.items()}
    for installed in outside(environment) if layers else ():
        if installed.prefix in layers:
            found |= dict.fromkeys(installed.scripts, layers[installed.prefix])
    return found


def _programs(copy: Copy, layers: Mapping[Path, Path], path: list[str]) -> Iterator[str]:
    """The directories of programs, with those of a layer instead of the virtual environment's, or before others."""
    for each in path:
        layer = layers.get(Path(each))
        if layer is not None:
            yield str(layer / "bin")
        if layer is None or not (Path(each).parent / "pyvenv.cfg").exists():
            yield copy.moved(each) if each else each


def _layers(copy: Copy) -> Iterator[tuple[Path, Path]]:
    """The layers outside the tree, each with the prefix of the environment that it replaces."""
    for record in _records(copy.own):
        if text := read(record):  # it is empty while the layer is made
            yield record.parent, Path(json.loads(text)["instead_of"])


def _records(own: Path) -> list[Path]:
    return sorted((own / "python").glob(f"*/{RECORD}"))


def layers_in(top: Path, own: Path) -> list[Path]:
    """All layers of a copy, in its tree and outside."""
    within = [venv for venv in venvs_in(top) if (venv / RECORD).is_file()]
    return [*within, *(record.parent for record in _records(own))]


def describe(copy: Copy, environment: Mapping[str, str]) -> str:
    where = (inside(each.prefix, copy.origin) or each.prefix for each in _needed(copy, environment))
    return f"worktrees and clean copies get a layer over {', '.join(map(str, where))} that imports their own files"


# ---- what leads out ----


def leads_out(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """Environments in use in the copy that still import from the user's checkout."""
    venvs = [*venvs_in(copy.top), *linked_venvs(copy.top, copy.project)]
    used = [*filter(None, map(of_venv, venvs)), *outside(environment)]
    leading = dict.fromkeys(each.prefix for each in used if leading_to(copy, each))
    return [f"{inside(prefix, copy.top) or prefix} imports from {copy.origin}" for prefix in leading]


def reads(copy: Copy, environment: Mapping[str, str]) -> Sequence[str]:
    """The user's environments and the shared ones below layers. What else a copy names, an agent may have written."""
    found: dict[str, None] = {}
    for each in _needed(copy, environment):
        found |= dict.fromkeys(map(str, each.sites))
        found[str(Path(os.path.realpath(each.python)).parent.parent)] = None
    for prefix in [*venvs_in(copy.top), *(layer for layer, _ in _layers(copy))]:
        layer = of_venv(prefix)
        sites = [Path(os.path.realpath(site)) for site in layer.sites] if layer is not None else []
        found |= dict.fromkeys(str(site) for site in sites if is_shared(site))
    return [path for path in found if path != "/"]


# ---- what cannot be copied ----


def compiled(copy: Copy, environment: Mapping[str, str]) -> list[str]:
    """Compiled extensions in the sources that the user's environment imports, by their paths in the checkout."""
    roots = {
        root
        for installed in in_use(copy, environment)
        for root in import_roots(copy, installed)
        if root.is_dir()
    }
    relative = (inside(path, copy.origin) for root in roots for path in _compiled_below(root))
    return sorted({str(path) for path in relative if path is not None})


def _compiled_below(root: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(root):
        is_venv = "pyvenv.cfg" in files
        names[:] = (
            [] if is_venv else [n for n in names if n not in (".git", "node_modules", "build", "__pycache__")]
        )
        yield from (Path(directory, each) for each in files if not is_venv and each.endswith(_COMPILED))
