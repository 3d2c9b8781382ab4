"""What a benchmark declares: its figures, aims and equalities, its peers and workload, and the tables that documents show.

`bench/NAME/benchmark.py` holds one `BENCHMARK`. Everything here is checked when it is made, so that a declaration that could not fail
is refused before anything is measured.
"""

import dataclasses
import importlib.util
import math
import operator
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Protocol, Sequence

ROOT = Path(__file__).resolve().parents[2]
COMPARISONS = {">=": operator.ge, "<=": operator.le}
ROUNDS = 3


class BenchError(Exception):
    """What ends a benchmark; the message says what and, where it can be mended, how."""


class Side(Protocol):
    """One of the systems on one of the jobs. `measure` runs it once and gives what it observed by name."""

    name: str

    def measure(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Figure:
    """A number of every round: observed by a side (`SIDE/NAME`), or with `of` computed from others of the same round."""

    name: str
    unit: str
    better: str = ""  # "higher", "lower", or neither
    of: Callable[[Mapping[str, float]], float] | None = None


@dataclass(frozen=True)
class Aim:
    """The median of `figure` over the rounds, compared with `bound`. `held` is made of these alone."""

    figure: str
    comparison: str
    bound: float
    about: str

    def holds(self, value):
        return COMPARISONS[self.comparison](value, self.bound)


@dataclass(frozen=True)
class Equality:
    """What must be the same in every round, or the measurement is of no use: observations of sides, and `value` where one is given.
    Numbers may differ by `tolerance`, relative."""

    about: str
    observed: Sequence[str]
    value: Any = None
    tolerance: float = 0.0

    def differing(self, seen):
        """The observations that are not the same, as words; empty when it holds."""
        found = {name: seen[name] for name in self.observed}
        expected = self.value if self.value is not None else found[self.observed[0]]
        same = lambda value: value == expected
        if self.tolerance:
            same = lambda value: math.isclose(value, expected, rel_tol=self.tolerance)
        if all(same(value) for value in found.values()):
            return ""
        return ", ".join(f"{name} = {str(value)[:200]!r}" for name, value in found.items()) + (
            "" if self.value is None else f"; expected {self.value!r}"
        )


@dataclass(frozen=True)
class Cell:
    """The median of a figure in a table, with so many decimals; multiplied by `times` first."""

    figure: str
    decimals: int = 0
    times: float = 1.0


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]


@dataclass(frozen=True)
class Curve:
    """A picture for the documents, both axes logarithmic: for each line of it the places along `axis` and the figures there."""

    name: str
    title: str
    axis: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, str]]]


@dataclass(frozen=True)
class Pinned:
    """Software that a benchmark compares with, by its exact version."""

    name: str
    version: str


@dataclass(frozen=True)
class Benchmark:
    """`sides` prepares the inputs and gives groups of sides: those of a group are measured by turns, each going first in some round.

    `parameters` is the workload, and part of the key of every cached input; `rehearsal` replaces some of them by small ones."""

    title: str
    sides: Callable[[Any], Sequence[Sequence[Side]]]
    parameters: Mapping[str, Any]
    rehearsal: Mapping[str, Any]
    figures: Sequence[Figure]
    aims: Sequence[Aim] = ()
    equalities: Sequence[Equality] = ()
    peers: Sequence[Any] = ()  # Pinned, or what has `versions` (peers.Venv, peers.Package)
    tables: Sequence[Table] = ()
    rounds: int = ROUNDS
    # Counts and metrics of what is seeded, which no round changes: one is enough. Times beside them are of that one.
    exact: bool = False
    curves: Sequence[Curve] = ()
    # Bytes of `memory` and `disk` that parameters take at most, where that may be more than a machine has.
    needs: Callable[[Mapping[str, Any]], Mapping[str, int]] | None = None
    # Of a benchmark that grows (`Growth`): the benchmark of one of its sizes, which are then measured one after another.
    part: Callable[[str], "Benchmark"] | None = None

    def __post_init__(self):
        figures = {figure.name: figure for figure in self.figures}
        refuse = lambda condition, words: _refuse(self.title, condition, words)
        refuse(len(figures) < len(self.figures), f"a figure is declared twice: {_repeated(figure.name for figure in self.figures)}")
        refuse(self.rounds < ROUNDS and not self.exact, f"{self.rounds} rounds; times need at least {ROUNDS}")
        refuse(not self.aims and not self.equalities, "neither an aim nor an equality: nothing could fail")
        refuse(not set(self.rehearsal) <= set(self.parameters), "the rehearsal names other parameters than the workload")
        for aim in self.aims:
            refuse(aim.figure not in figures, f"no figure `{aim.figure}` for the aim “{aim.about}”")
            refuse(aim.comparison not in COMPARISONS, f"`{aim.comparison}` is none of {', '.join(COMPARISONS)}")
            way = {">=": "higher", "<=": "lower"}[aim.comparison]
            refuse(figures[aim.figure].better != way, f"the aim “{aim.about}” is not towards what is better in `{aim.figure}`")
        for equality in self.equalities:
            alone = len(equality.observed) < 2 and equality.value is None
            refuse(alone or not equality.observed, f"nothing to compare in “{equality.about}”")
        for table in self.tables:
            for row in table.rows:
                refuse(len(row) != len(table.head), f"a row of {len(row)} cells under {len(table.head)} headings")
                for cell in row:
                    refuse(isinstance(cell, Cell) and cell.figure not in figures, f"no figure `{getattr(cell, 'figure', '')}` for a table")
        for curve in self.curves:
            for line in curve.lines.values():
                lacking = [figure for _, figure in line if figure not in figures]
                refuse(lacking, f"no figure {lacking} for the curve `{curve.name}`")

    def with_parameters(self, given):
        """The workload with some parameters by the words `NAME=NUMBER`."""
        changed = {}
        for words in given:
            name, _, value = words.partition("=")
            if self.part is not None:
                raise BenchError(f"--set {words}: this benchmark grows, and is measured at its --sizes")
            if name not in self.parameters:
                raise BenchError(f"--set {words}: no such parameter; there are {', '.join(self.parameters)}")
            if not re.fullmatch(r"[1-9][0-9_]*", value):
                raise BenchError(f"--set {words}: a parameter is a whole number above 0")
            changed[name] = int(value)
        return {**self.parameters, **changed}

    def versions(self):
        """Every peer with its version."""
        found = {}
        for peer in self.peers:
            found |= {peer.name: peer.version} if isinstance(peer, Pinned) else peer.versions
        return found


@dataclass(frozen=True)
class Growth:
    """One benchmark at several sizes, the smallest first: `usual` are measured unless others are named, `rehearsed`, which may be smaller
    than all of them, in rehearsals.

    `of` makes the benchmark of some of the sizes; its sides, figures and equalities have the size in their names."""

    sizes: Sequence[str]
    usual: Sequence[str]
    rehearsed: Sequence[str]
    of: Callable[[Sequence[str]], Benchmark]

    def at(self, sizes):
        """The benchmark of these sizes, in the order of all."""
        if unknown := [size for size in sizes if size not in (*self.rehearsed, *self.sizes)]:
            raise BenchError(f"no size {', '.join(unknown)}: there are {', '.join(self.sizes)}")
        sizes = [size for size in dict.fromkeys((*self.rehearsed, *self.sizes)) if size in sizes]
        made = self.of(sizes)
        return dataclasses.replace(made, parameters={**made.parameters, "sizes": sizes}, part=lambda size: self.of([size]))


def _refuse(title, condition, words):
    if condition:
        raise BenchError(f"declaration of “{title}”: {words}")


def _repeated(names):
    names = list(names)
    return ", ".join(sorted({name for name in names if names.count(name) > 1}))


def names(root=ROOT):
    """The benchmarks there are."""
    return sorted(path.parent.name for path in (root / "bench").glob("*/benchmark.py"))


def load(name, root=ROOT, sizes=None):
    """The declaration of a benchmark; of one that grows at `sizes`: names of them, `all`, `rehearsed`, or by default the usual ones."""
    path = root / "bench" / name / "benchmark.py"
    if not re.fullmatch(r"[a-z0-9-]+", name) or not path.exists():
        raise BenchError(f"no benchmark `{name}`: there are {', '.join(names(root))}")
    spec = importlib.util.spec_from_file_location(f"benchmark_{name.replace('-', '_')}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    growth = getattr(module, "GROWTH", None)
    if growth:
        named = {None: growth.usual, "all": growth.sizes, "rehearsed": growth.rehearsed}
        return growth.at(sizes if isinstance(sizes, (list, tuple)) else named[sizes])
    if isinstance(sizes, (list, tuple)):
        raise BenchError(f"`{name}` has no sizes")
    return module.BENCHMARK
