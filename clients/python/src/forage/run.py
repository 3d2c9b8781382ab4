"""Folders of runs, read."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

__all__ = ["Run"]

# The columns of tables, which one without a row has too.
_COLUMNS = {
    "metrics": ("step",),
    "alarms": ("kind", "severity", "step", "value", "threshold", "message"),
    "episodes": (
        *("step", "schema", "reward", "answer", "turns", "searches"),
        *("tokens", "prompt_tokens", "policy_tokens", "environment_tokens", "episode"),
    ),
}
# Metrics of rewards by name.
_COMPONENT = "reward/component/"


class Run:
    """The folder of a run, which may still be going on: everything is read when it is asked for.

    A quickstart is made of runs: `parts["trained"]` and `parts["control"]`, with the verdict in the folder around them. Its metrics, alarms
    and episodes are those of all its runs, each with the name of its `part`.

    Attributes:
        folder: the folder.
    """

    def __init__(self, folder: str | Path) -> None:
        """Looks whether a run was begun there.

        Raises:
            FileNotFoundError: it is not the folder of a run.
        """
        self.folder = Path(folder)
        if not (self.folder / "metrics.jsonl").exists() and not self.parts:
            raise FileNotFoundError(
                f"{self.folder} holds no run: there is no metrics.jsonl in it, nor in trained/ or control/"
            )

    def __repr__(self) -> str:
        """With the folder."""
        return f"Run({str(self.folder)!r})"

    @property
    def parts(self) -> dict[str, "Run"]:
        """The runs within this one, by name: those of a quickstart and its twins."""
        places = [self.folder / name for name in ("trained", "control")] + sorted(self.folder.glob("twins/*"))
        return {place.name: Run(place) for place in places if (place / "metrics.jsonl").exists()}

    @property
    def config(self) -> dict[str, Any]:
        """The config with every key, as it was when the run began; of supervised fine-tuning its settings.

        Raises:
            FileNotFoundError: the run has none, or only its parts do.
        """
        settings = self.folder / "sft.json"
        if settings.exists():
            found: dict[str, Any] = json.loads(settings.read_bytes())
            return found
        return tomllib.loads((self.folder / "config.toml").read_text(encoding="utf-8"))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A row for each step, by the names of `docs/metrics.md`; no metric stands in every row.

        `step` counts from 0, as in alarms, reports and names of files; `train 1/3` on the terminal counts the steps that are done.
        """
        if within := self._within():
            return [{"part": name, **row} for name, run in within.items() for row in run.metrics]
        return list(_rows(self.folder / "metrics.jsonl"))

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """What the sentinel raised, in the order of steps.

        Signs of telemetry, which `forage runs list` counts too, are judged anew over all steps: `forage telemetry RUN --json`.
        """
        if within := self._within():
            return [{"part": name, **alarm} for name, run in within.items() for alarm in run.alarms]
        path = self.folder / "alarms.jsonl"
        return list(_rows(path)) if path.exists() else []

    def episodes(self, evaluation: str | None = None) -> Iterator[dict[str, Any]]:
        """The recorded episodes of training, step by step: the form of `forage eval --out`, with the `step` besides.

        They are a sample, the first group of every tenth step and of the last. Supervised fine-tuning records none.

        Args:
            evaluation: the evaluation whose episodes are read in place of those of training, by its name in the folder `evaluation`:
                of a quickstart `start`, `trained` and `control`, and with `.sampled` behind it the sampled ones.

        Raises:
            FileNotFoundError: it has no such evaluation.
        """
        if evaluation is not None:
            path = self.folder / "evaluation" / f"{evaluation}.jsonl"
            if not path.exists():
                known = ", ".join(sorted(found.stem for found in path.parent.glob("*.jsonl"))) or "none"
                raise FileNotFoundError(f"{path} is not there; evaluations of this run: {known}")
            return _rows(path)
        return self._recorded()

    def _recorded(self) -> Iterator[dict[str, Any]]:
        for name, run in self._within().items():
            yield from ({"part": name, **row} for row in run.episodes())
        for path in sorted((self.folder / "rollouts").glob("step-*.jsonl")):
            step = int(path.stem.removeprefix("step-"))
            yield from ({"step": step, **row} for row in _rows(path))

    def _within(self) -> dict[str, "Run"]:
        """The runs whose records are this one's, where its own folder has none."""
        return {} if (self.folder / "metrics.jsonl").exists() else self.parts

    @property
    def verdict(self) -> dict[str, Any] | None:
        """What a quickstart came to; None before its end, and of other runs."""
        path = self.folder / "verdict.json"
        if not path.exists():
            return None
        verdict: dict[str, Any] = json.loads(path.read_bytes())
        return verdict

    @property
    def policy(self) -> Path | None:
        """The trained policy, a folder as Hugging Face has them; None before the end of the run."""
        path = self.folder / "policy"
        return path if path.is_dir() else None

    def frame(self, of: Literal["metrics", "alarms", "episodes"] = "metrics") -> "pandas.DataFrame":
        """`metrics`, `alarms` or `episodes()` as a table, with the `part` of a quickstart.

        A table without a row has columns too. That of metrics has one for each metric, NaN where a step has none.

        Args:
            of: what is in the table.

        Raises:
            ValueError: `of` is something else.
            ModuleNotFoundError: pandas is not installed (`pip install forage[pandas]`).
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise missing("pandas", "pandas") from error

        if of not in _COLUMNS:
            raise ValueError(f"of is {of!r}; it must be one of {', '.join(_COLUMNS)}")
        rows = list(self.episodes()) if of == "episodes" else self.alarms if of == "alarms" else self.metrics
        first = ("part", *_COLUMNS[of]) if self._within() else _COLUMNS[of]
        found = (key for row in rows for key in row)
        return pandas.DataFrame(rows, columns=list(dict.fromkeys([*first, *found])))

    def plot(self, *keys: str) -> list["Axes"]:
        """Draws metrics over the steps, one below the other: this run's, and those of the runs within it.

        Runs that are paid by different rewards are named with them: the curve of `reward/mean` of one is then not that of another's.

        `run.plot("reward/mean", "turns/mean")[0].figure.savefig("run.png")` writes the picture to a file.

        Args:
            keys: names of metrics, of which each is drawn at the steps that have it.

        Returns:
            A plot of matplotlib for each of them.

        Raises:
            ValueError: no metric is named.
            KeyError: no step has a metric of this name.
            ModuleNotFoundError: matplotlib is not installed (`pip install forage[plots]`).
        """
        if not keys:
            raise ValueError('name a metric to draw, such as plot("reward/mean")')
        try:
            from matplotlib import pyplot, ticker
        except ModuleNotFoundError as error:
            raise missing("matplotlib", "plots") from error

        runs = dict(self.parts)
        if (self.folder / "metrics.jsonl").exists():
            runs = {self.folder.name: self, **runs}
        rows = {name: run.metrics for name, run in runs.items()}
        known = {key for run in rows.values() for row in run for key in row}
        for key in keys:
            if key not in known:
                # Of a family of metrics the mean is meant.
                mean = f"{key}/mean"
                near = [mean] if mean in known else get_close_matches(key, known, n=1)
                raise KeyError(f"no step has {key}" + (f"; did you mean {near[0]}?" if near else ""))
        _, places = pyplot.subplots(
            len(keys), 1, sharex=True, squeeze=False, figsize=(7.0, 2.4 * len(keys)), layout="constrained"
        )
        axes: list[Axes] = [row[0] for row in places]
        names = self._labels(rows)
        for place, key in zip(axes, keys, strict=True):
            # A run has one colour in all of them, whether or not it has every metric.
            for number, (name, own) in enumerate(rows.items()):
                drawn = [row for row in own if row.get(key) is not None]
                if drawn:
                    # A metric of every tenth step, say, would be lost between its neighbours without a mark.
                    mark = "." if len(drawn) < 50 else ""
                    steps, values = [row["step"] for row in drawn], [row[key] for row in drawn]
                    place.plot(steps, values, mark + "-", label=names[name], color=f"C{number}")
            place.set_ylabel(key)
            if len(rows) > 1:
                place.legend()
        axes[-1].set_xlabel("step")
        # Shared by all of them.
        axes[-1].xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        return axes

    def _labels(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
        """Names of runs, with the rewards that pay them where one is paid by a reward that others do not measure."""
        measured = {
            name: {key.removeprefix(_COMPONENT) for row in own for key in row if key.startswith(_COMPONENT)}
            for name, own in rows.items()
        }
        shared = set.intersection(*measured.values())
        paid = {name: sorted(own - shared) for name, own in measured.items()}
        if any(paid.values()) and (self.folder / "config.toml").exists():
            paid["trained" if "trained" in rows else self.folder.name] = list(self.config.get("reward", {}))
        return {name: f"{name} ({', '.join(paid[name])})" if paid[name] else name for name in rows}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    # Bytes: a line that is being written may end within a letter.
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}: line {number} is not JSON ({error}); delete it") from error
            yield row


def missing(package: str, extra: str) -> ModuleNotFoundError:
    """The error where a package that an extra brings is not installed."""
    return ModuleNotFoundError(f"{package} is not installed; pip install 'forage[{extra}]' brings it", name=package)
