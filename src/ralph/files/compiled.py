"""Compiles one of Ralph's modules to a file that any Python of the same version can run."""

from __future__ import annotations

import marshal
from _frozen_importlib_external import MAGIC_NUMBER
from types import ModuleType
from typing import Any


def compiled(module: ModuleType) -> bytes:
    loader: Any = module.__loader__
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(loader.get_code(module.__name__))
