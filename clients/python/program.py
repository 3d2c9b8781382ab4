"""Puts the program into the wheel: the one that FORAGE_BIN names, else the one that cargo makes of this repository."""

import json
import os
import platform
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Libraries that every Linux with glibc has (PEP 600; the list of auditwheel without those of a desktop).
_EVERYWHERE = {
    *("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1", "libstdc++.so.6"),
    *("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"),
}


class Program(BuildHookInterface[Any]):
    """The hook that hatchling calls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Names the program as a script of the wheel, and the systems it runs on."""
        # For work on this package the program is found through FORAGE_BIN or the PATH.
        if version == "editable":
            return
        named = os.environ.get("FORAGE_BIN")
        program = Path(named).resolve() if named else self._compiled()
        if not program.is_file():
            raise FileNotFoundError(f"FORAGE_BIN is {program}, which is not a file; name the forage program")
        build_data["shared_scripts"] = {str(program): "forage"}
        licences = ("LICENSE-APACHE", "LICENSE-MIT", "NOTICE")
        build_data["extra_metadata"] = {str(self._repository / name): name for name in licences}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_runs_on(program)}"

    @property
    def _repository(self) -> Path:
        return Path(self.root).parents[1]

    def _compiled(self) -> Path:
        command = [
            "cargo",
            "build",
            "--release",
            "--locked",
            "-p",
            "forage",
            "--message-format=json-render-diagnostics",
        ]
        made = subprocess.run(command, cwd=self._repository, stdout=subprocess.PIPE, check=True)
        messages = [json.loads(line) for line in made.stdout.splitlines()]
        (program,) = {
            one["executable"] for one in messages if one.get("executable") and one["target"]["name"] == "forage"
        }
        return Path(program)


def _runs_on(program: Path) -> str:
    """The wheel's tag for systems: of Linux the oldest glibc that has all the program asks for."""
    if platform.system() != "Linux":
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
    with program.open("rb") as file:
        elf = ELFFile(file)
        libraries = {str(tag.needed) for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
        needs = [one for one in elf.iter_sections() if isinstance(one, GNUVerNeedSection)]
        names = [version.name for need in needs for _, versions in need.iter_versions() for version in versions]
    found = [tuple(map(int, name[6:].split("."))) for name in names if name.startswith("GLIBC_2.")]
    if not found or not libraries <= _EVERYWHERE:
        return f"linux_{platform.machine()}"
    major, minor = max(found)[:2]
    return f"manylinux_{major}_{minor}_{platform.machine()}"
