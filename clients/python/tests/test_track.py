"""Runs followed into Weights & Biases, offline, and into trackio, on this machine."""

import importlib
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import BINARY

import forage
from forage.track import _main, track

tracking = importlib.import_module("forage.track")
CONFIG = 'seed = 1\n[grpo]\nsteps = 3\nloss = "ppo"\n'


def run_of(folder, steps, config=CONFIG):
    folder.mkdir(parents=True, exist_ok=True)
    if config:
        (folder / "config.toml").write_text(config)
    rows = [{"step": step, "reward/mean": step / 10, "val/em": None} for step in steps]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def records(path):
    """The records of a file that wandb writes offline: the log format of LevelDB behind a header of seven bytes."""
    from wandb.proto import wandb_internal_pb2

    data, place, held = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        size, kind = struct.unpack_from("<HB", data, place + 4)
        held += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(held)
            held = b""
            yield record


class Wandb:
    """What was logged, by the id of the run."""

    name = "wandb"

    def __init__(self, folder):
        self.folder = folder
        self.project = "forage-test"

    def track(self, run, **settings):
        # Two offline runs of one id that begin within a second would have one folder.
        folder = self.folder / f"wandb-{len(list(self.folder.glob('wandb-*')))}"
        folder.mkdir()
        return track(run, "wandb", project=self.project, mode="offline", dir=folder, **settings)

    def runs(self):
        # Another process writes the files, and is then waited for.
        importlib.import_module("wandb").teardown()
        found = {}
        for path in sorted(self.folder.glob("wandb-*/wandb/offline-run-*/*.wandb")):
            own = None
            for record in records(path):
                kind = record.WhichOneof("record_type")
                if kind == "run" and record.run.run_id:
                    own = found.setdefault(record.run.run_id, {"rows": []})
                    own["name"], own["group"] = record.run.display_name, record.run.run_group
                    own["config"] = {one.key: json.loads(one.value_json) for one in record.run.config.update}
                elif kind == "history":
                    keys = {one.key or one.nested_key[0]: json.loads(one.value_json) for one in record.history.item}
                    own["rows"].append((record.history.step.num, keys.get("reward/mean"), "val/em" in keys))
        return sorted(found.values(), key=lambda run: run["name"])


class Trackio:
    """The same of trackio."""

    name = "trackio"

    def __init__(self, folder):
        self.project = f"forage-{folder.name}"

    def track(self, run, **settings):
        return track(run, "trackio", project=self.project, **settings)

    def runs(self):
        trackio, storage = importlib.import_module("trackio"), importlib.import_module("trackio.sqlite_storage")
        found = []
        for run in trackio.Api().runs(self.project):
            logs = storage.SQLiteStorage.get_logs(self.project, run.name, run_id=run.id)
            rows = [(row["step"], row.get("reward/mean"), "val/em" in row) for row in logs]
            found.append({"name": run.name, "group": run.config["_Group"] or "", "config": run.config, "rows": rows})
        return sorted(found, key=lambda run: run["name"])


@pytest.fixture(scope="module")
def trackio_folder(tmp_path_factory):
    # Read when the package is imported.
    os.environ.setdefault("TRACKIO_DIR", str(tmp_path_factory.mktemp("trackio")))


@pytest.fixture(params=[Wandb, Trackio], ids=lambda kind: kind.name)
def tracker(request, tmp_path, trackio_folder):
    pytest.importorskip(request.param.name, reason=f"{request.param.name} is not installed")
    return request.param(tmp_path)


def test_steps_are_logged_once_with_the_config(tracker, tmp_path):
    run = run_of(tmp_path / "one", range(2))
    assert tracker.track(run, follow=False) == 2
    assert tracker.track(run, follow=False) == 0
    # As after a resume from the checkpoint of step 1.
    run_of(run, range(4))
    assert tracker.track(run, follow=False) == 2
    (logged,) = tracker.runs()
    assert logged["rows"] == [(0, 0.0, False), (1, 0.1, False), (2, 0.2, False), (3, 0.3, False)]
    assert (logged["name"], logged["group"]) == ("one", "")
    assert logged["config"]["grpo"] == {"steps": 3, "loss": "ppo"}


def test_a_run_is_followed_to_its_end(tracker, tmp_path, monkeypatch):
    run = run_of(tmp_path / "live", range(1))
    looks = iter([2, 3, None])

    def goes_on(folder):
        steps = next(looks)
        run_of(run, range(steps or 5))
        return steps is not None

    monkeypatch.setattr(tracking, "_goes_on", goes_on)
    assert tracker.track(run, every=0.0) == 5
    (logged,) = tracker.runs()
    assert [step for step, _, _ in logged["rows"]] == list(range(5))


def test_the_runs_of_a_quickstart_are_a_group(tracker, tmp_path):
    quickstart = tmp_path / "quick"
    run_of(quickstart / "trained", range(2), config=None)
    run_of(quickstart / "control", range(3), config=None)
    (quickstart / "config.toml").write_text(CONFIG)
    assert tracker.track(quickstart, follow=False) == 5
    control, trained = tracker.runs()
    assert [control["name"], trained["name"]] == ["quick/control", "quick/trained"]
    assert [len(control["rows"]), len(trained["rows"])] == [3, 2]
    assert {control["group"], trained["group"]} == {"quick"}
    assert control["config"]["grpo"]["steps"] == 3


def test_runs_side_by_side_are_opened_once(tmp_path, monkeypatch):
    """As those of a quickstart, of which each look finds rows of both."""
    opened, finished = [], []

    def init(**about):
        name = about["name"]
        opened.append(name)
        return SimpleNamespace(id=name, log=lambda numbers, step: None, finish=lambda: finished.append(name))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Settings=lambda **_: None, init=init))
    quickstart, looks = tmp_path / "quick", iter([2, 3, 4])

    def taken(steps):
        for part in ("trained", "control"):
            run_of(quickstart / part, range(steps), config=None)

    def goes_on(folder):
        steps = next(looks)
        taken(steps)
        return steps < 4

    taken(1)
    monkeypatch.setattr(tracking, "_goes_on", goes_on)
    assert track(quickstart, every=0.0) == 8
    assert sorted(opened) == sorted(finished) == ["quick/control", "quick/trained"]


def test_training_is_followed(tracker, world, tmp_path):
    config = Path(__file__).parents[3] / "configs/smoke.toml"
    command = [BINARY, "train", str(config), "--set", "grpo.steps=3", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as training:
        logged = tracker.track(tmp_path / "run", every=0.1, wait=60)
        assert training.wait() == 0
    assert logged == 3
    (followed,) = tracker.runs()
    rows = forage.Run(tmp_path / "run").metrics
    assert [(step, value) for step, value, _ in followed["rows"]] == [(row["step"], row["reward/mean"]) for row in rows]


def test_another_run_of_the_name_is_not_gone_on_with(tmp_path, trackio_folder):
    pytest.importorskip("trackio", reason="trackio is not installed")
    runs = [run_of(tmp_path / folder / "run", range(1)) for folder in ("a", "b")]
    for run in runs:
        track(run, "trackio", project="forage-named", follow=False)
    run_of(runs[0], range(2))
    with pytest.raises(RuntimeError, match="another run of forage-named has the name run"):
        track(runs[0], "trackio", project="forage-named", follow=False)
    # As where the project was deleted.
    (runs[1] / "tracked.trackio.json").write_text('{"forage-gone": {"id": "1", "name": "run", "step": -1}}')
    with pytest.raises(RuntimeError, match=r"does not exist .*; remove .*tracked.trackio.json"):
        track(runs[1], "trackio", project="forage-gone", follow=False)


def test_rows_before_an_interrupt_are_not_logged_again(tmp_path, monkeypatch):
    logged, interrupts = [], iter([True])

    def log(numbers, step):
        if step == 2 and next(interrupts, False):
            raise KeyboardInterrupt
        logged.append(step)

    opened = SimpleNamespace(id="one", log=log, finish=lambda: None)
    package = SimpleNamespace(Settings=lambda **_: None, init=lambda **_: opened)
    monkeypatch.setitem(sys.modules, "wandb", package)
    run = run_of(tmp_path / "run", range(4))
    with pytest.raises(KeyboardInterrupt):
        track(run, follow=False)
    assert track(run, follow=False) == 2
    assert logged == [0, 1, 2, 3]


def test_what_is_wrong_is_said(tmp_path, monkeypatch, capsys):
    # The handler is the command's.
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    # A package that cannot be imported stands for one that is missing.
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert _main([str(tmp_path)]) == 1
    assert "wandb is not installed; pip install 'forage[wandb]'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=None))
    assert _main([str(tmp_path), "--once"]) == 1
    assert "holds no run" in capsys.readouterr().err


def test_a_folder_of_its_name_is_no_package(tmp_path, monkeypatch):
    """As wandb leaves one where it has run."""
    run, folder = run_of(tmp_path / "run", range(1)), tmp_path / "wandb"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    # Put back as it was at the end, whether it was imported or not.
    monkeypatch.setitem(sys.modules, "wandb", None)
    del sys.modules["wandb"]
    with pytest.raises(ModuleNotFoundError, match=r"wandb is not installed; pip install 'forage\[wandb\]'"):
        track(run, follow=False)
    with pytest.raises(ValueError, match="to is 'json'; write one of wandb, trackio"):
        track(run, "json", follow=False)
