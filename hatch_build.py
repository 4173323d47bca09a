"""Compiles the native operators into the wheel, also into that of an editable install; without a compiler the wheel is pure Python."""

import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Compile(BuildHookInterface):
    """The hook that hatchling finds by the name of this file."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and tell the wheel what platform it is for."""
        if self.target_name != "wheel":
            return
        path = Path(self.root) / "src/mollifier/ops/_build.py"  # which imports nothing but the standard library
        spec = importlib.util.spec_from_file_location("mollifier_build", path)
        builder = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(builder)
        self.app.display_info("mollifier: compiling the native operators, half a minute or so")
        try:
            built = builder.build()
        except (builder.NoCompilerError, OSError) as problem:
            for old in builder.BUILT.glob("*.so") if builder.BUILT.is_dir() else ():
                old.unlink()
            print(f"mollifier: {problem}; the slower reference serves instead", file=sys.stderr)
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if version != "editable":
            build_data["force_include"].update({str(file): f"mollifier/ops/lib/{file.name}" for file in built})
