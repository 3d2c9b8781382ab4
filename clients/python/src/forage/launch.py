"""The forage program: where it is, and the quickstart."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from .run import Run

__all__ = ["program", "quickstart"]


def program() -> Path:
    """Where the forage program is: what FORAGE_BIN names, else what the wheel brought, else the first on the PATH.

    Raises:
        FileNotFoundError: there is none.
    """
    named = os.environ.get("FORAGE_BIN")
    found = named or _brought() or shutil.which("forage")
    if not found:
        raise FileNotFoundError("there is no forage program: install forage from a wheel, or name one in FORAGE_BIN")
    path = Path(found).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"{'FORAGE_BIN names' if named else 'the wheel brought'} {path}, which is not there")
    return path


def _brought() -> str | None:
    try:
        files = metadata.files("forage") or []
    except metadata.PackageNotFoundError:
        return None
    scripts = (
        file for file in files if file.name in ("forage", "forage.exe") and file.parent.name in ("bin", "Scripts")
    )
    return next((str(file.locate()) for file in scripts), None)


def quickstart(
    out: str | Path = "runs/quickstart",
    *,
    env: str = "search-r1",
    settings: Mapping[str, str | int | float] | None = None,
) -> Run:
    """Goes from a generated world to a verdict, as `forage quickstart` does; what it says goes to the terminal.

    Args:
        out: folder of the run, which must be empty or absent.
        env: `search-r1` or `code-search`.
        settings: values of the config to change, such as `{"grpo.steps": 20}`.

    Returns:
        The finished run, which has a `verdict`.

    Raises:
        FileNotFoundError: there is no forage program.
        subprocess.CalledProcessError: it failed, and has said why.
    """
    changes = [word for key, value in (settings or {}).items() for word in ("--set", f"{key}={value}")]
    subprocess.run([program(), "quickstart", "--out", str(out), "--env", env, *changes], check=True)
    return Run(out)
