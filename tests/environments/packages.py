"""Python projects by build backend and installer, each as its documentation tells users to install it."""

from __future__ import annotations

from environments.package_support import LOCATED, TEST, Package

_TESTS = {"tests/test_demo.py": TEST, "tests/test_located.py": LOCATED}
_VENV = '"$PY" -m venv --without-pip .venv'
_PIP = "pip --python .venv/bin/python install -q"
_PYTEST = "uv pip install -q --python .venv/bin/python pytest"


def _project(backend: str, requires: str, tables: str = "") -> str:
    return (
        f'[build-system]\nrequires = [{requires}]\nbuild-backend = "{backend}"\n\n'
        f'[project]\nname = "demo"\nversion = "1.0"\ndependencies = []\n'
        f'[project.scripts]\ndemo = "demo:main"\n\n{tables}'
    )


_SETUPTOOLS = _project("setuptools.build_meta", '"setuptools>=80"')
_HATCHLING = _project(
    "hatchling.build", '"hatchling"', '[tool.hatch.build.targets.wheel]\npackages = ["src/demo"]\n'
)
_POETRY = _project(
    "poetry.core.masonry.api",
    '"poetry-core>=2"',
    '[tool.poetry]\npackages = [{ include = "demo", from = "src" }]\n',
)
_PDM = _project("pdm.backend", '"pdm-backend"', "[tool.pdm]\ndistribution = true\n")
_UV = _project("uv_build", '"uv_build"', '[dependency-groups]\ndev = ["pytest"]\n')
_MEMBER = _UV.replace('"demo"', '"helper"').partition("[dependency-groups]")[0]


def _pip(pyproject: str, words: str = "", code: str = "src/demo/__init__.py") -> Package:
    install = f"{_VENV}\n{_PYTEST}\n{_PIP} {words} -e ."
    return Package({"pyproject.toml": pyproject} | _TESTS, install, ("uv", "pip"), code=code)


PACKAGES = {
    "pip, src layout": _pip(_SETUPTOOLS),
    "pip, flat layout": _pip(
        _SETUPTOOLS + '[tool.setuptools]\npackages = ["demo"]\n', code="demo/__init__.py"
    ),
    "pip, strict": _pip(_SETUPTOOLS, "--config-settings editable_mode=strict"),
    "hatchling": _pip(_HATCHLING),
    "flit": Package(
        {
            "pyproject.toml": _project("flit_core.buildapi", '"flit_core>=3.11"').replace(
                'version = "1.0"', 'version = "1.0"\ndescription = "Demo"'
            )
        }
        | _TESTS,
        f"{_VENV}\n{_PYTEST}\nflit install --symlink --deps=none --python .venv/bin/python",
        ("uv", "flit"),
    ),
    "poetry": Package(
        {"pyproject.toml": _POETRY} | _TESTS, f"{_VENV}\n{_PYTEST}\npoetry -q install", ("uv", "poetry")
    ),
    "pdm": Package(
        {"pyproject.toml": _PDM} | _TESTS,
        f"{_VENV}\n{_PYTEST}\npdm use -q -f .venv\npdm install -q",
        ("uv", "pdm"),
    ),
    "uv": Package({"pyproject.toml": _UV} | _TESTS, "uv sync -q"),
    "uv, workspace": Package(
        {
            "pyproject.toml": _UV.replace("dependencies = []", 'dependencies = ["helper"]')
            + '[tool.uv.workspace]\nmembers = ["helper"]\n[tool.uv.sources]\nhelper = { workspace = true }\n',
            "src/demo/__init__.py": "",
            "helper/pyproject.toml": _MEMBER,
            "tests/test_demo.py": TEST.replace("demo", "helper"),
            "tests/test_located.py": LOCATED.replace("demo", "helper"),
        },
        "uv sync -q",
        code="helper/src/helper/__init__.py",
    ),
    "uv run": Package({"pyproject.toml": _UV} | _TESTS, "uv sync -q", check="uv run -q pytest -q"),
    "scikit-build-core": Package(
        {
            "pyproject.toml": _project(
                "scikit_build_core.build",
                '"scikit-build-core"',
                '[tool.scikit-build]\neditable.mode = "redirect"\n',
            ),
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.15)\nproject(demo LANGUAGES NONE)\n",
        }
        | _TESTS,
        f"{_VENV}\n{_PYTEST} scikit-build-core\n{_PIP} --no-build-isolation -e .",
        ("uv", "pip"),
    ),
    "meson-python": Package(
        {
            "pyproject.toml": _project("mesonpy", '"meson-python"'),
            "meson.build": "project('demo', version: '1.0')\npy = import('python').find_installation(pure: true)\n"
            "py.install_sources('src/demo/__init__.py', subdir: 'demo')\n",
        }
        | _TESTS,
        f'{_VENV}\n{_PYTEST} meson-python ninja\nPATH="$PWD/.venv/bin:$PATH" {_PIP} --no-build-isolation -e .',
        ("uv", "pip"),
    ),
}
