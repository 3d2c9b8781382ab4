"""Folders of runs, the program, and searches over a served index."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import BINARY, serving

import forage
from forage.trl import rows


@pytest.fixture(scope="session")
def run(world, tmp_path_factory: pytest.TempPathFactory) -> forage.Run:
    """Two steps of training."""
    folder = tmp_path_factory.mktemp("run") / "run"
    config = Path(__file__).parents[3] / "configs/smoke.toml"
    command = [BINARY, "train", str(config), "--set", "grpo.steps=2", "--out", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return forage.Run(folder)


def test_a_run_is_read(run):
    assert run.config["grpo"]["steps"] == 2
    assert [row["step"] for row in run.metrics] == [0, 1]
    assert all("reward/mean" in row for row in run.metrics)
    assert (run.policy / "config.json").exists()
    assert (run.verdict, run.parts) == (None, {})
    assert run.alarms == [] or {"step", "metric"} & run.alarms[0].keys()
    assert repr(run).startswith("Run('")
    recorded = list(run.episodes())
    assert {episode["step"] for episode in recorded} == {0, 1}
    assert {episode["episode"]["group"] for episode in recorded} == {0}


def test_metrics_are_a_table(run):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = run.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["step"].tolist() == [0, 1]
    assert frame["reward/mean"].tolist() == [row["reward/mean"] for row in run.metrics]
    episodes = run.frame("episodes")
    # Every record has these columns, and no others.
    assert list(episodes.columns) == list(next(run.episodes()))
    assert len(episodes) == len(list(run.episodes()))
    with pytest.raises(ValueError, match="must be one of metrics, alarms, episodes"):
        run.frame("alarm")


def test_a_table_without_rows_has_its_columns(tmp_path):
    pytest.importorskip("pandas", reason="pandas is not installed")
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained/metrics.jsonl").touch()
    run = forage.Run(tmp_path)
    assert run.frame("alarms").groupby("kind").size().empty
    assert list(run.frame("alarms").columns[:3]) == ["part", "kind", "severity"]
    assert list(run.parts["trained"].frame().columns) == ["step"]
    alarm = {"kind": "kl", "severity": "warn", "step": 3, "value": 1.0, "threshold": 0.5, "message": "It rose."}
    (tmp_path / "trained/alarms.jsonl").write_text(json.dumps(alarm) + "\n")
    assert run.frame("alarms").to_dict("records") == [{"part": "trained", **alarm}]


def test_evaluations_of_a_run_are_read(tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    run = forage.Run(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"evaluation/trained\.jsonl is not there; .*: none"):
        next(run.episodes("trained"))
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "evaluation/trained.sampled.jsonl").write_text('{"reward": 1.0}\n')
    assert list(run.episodes("trained.sampled")) == [{"reward": 1.0}]
    with pytest.raises(FileNotFoundError, match=r"of this run: trained\.sampled$"):
        next(run.episodes("start"))


def test_runs_that_other_rewards_pay_are_named_with_them(tmp_path):
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("Agg")
    (tmp_path / "config.toml").write_text("[reward]\nem = 1.0\n")
    em = {"step": 0, "reward/mean": 0.4, "reward/component/em": 0.4}
    for part, more in (("trained", {"entropy": 1.0}), ("control", {"reward/component/any_search": 0.9})):
        (tmp_path / part).mkdir()
        (tmp_path / part / "metrics.jsonl").write_text(json.dumps(em | more) + "\n")
    searches, reward = forage.Run(tmp_path).plot("reward/component/any_search", "reward/mean")
    assert [text.get_text() for text in reward.get_legend().get_texts()] == ["trained (em)", "control (any_search)"]
    assert searches.lines[0].get_color() == reward.lines[1].get_color()
    # Those of one reward have their names alone.
    (tmp_path / "control/metrics.jsonl").write_text(json.dumps(em) + "\n")
    (reward,) = forage.Run(tmp_path).plot("reward/mean")
    assert [text.get_text() for text in reward.get_legend().get_texts()] == ["trained", "control"]


def test_metrics_are_drawn(run, tmp_path):
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("Agg")
    reward, validation = run.plot("reward/mean", "val/em")
    assert list(reward.lines[0].get_ydata()) == [row["reward/mean"] for row in run.metrics]
    assert len(validation.lines[0].get_xdata()) == sum("val/em" in row for row in run.metrics)
    assert all(float(tick).is_integer() for axes in (reward, validation) for tick in axes.get_xticks())
    with pytest.raises(KeyError, match=r"did you mean reward/mean\?"):
        run.plot("reward/meen")
    with pytest.raises(KeyError, match=r"did you mean reward/mean\?"):
        run.plot("reward")
    with pytest.raises(ValueError, match="name a metric"):
        run.plot()
    for part, value in (("trained", 1.0), ("control", 0.0)):
        (tmp_path / part).mkdir()
        (tmp_path / part / "metrics.jsonl").write_text(json.dumps({"step": 0, "val/em": value}) + "\n")
    (both,) = forage.Run(tmp_path).plot("val/em")
    assert [line.get_label() for line in both.lines] == ["trained", "control"]


def test_answers_are_graded(world):
    found = forage.grade_many([("The Velm.", "Velm"), ("Velm or Orlen", ["Orlen", "Sund"])])
    assert [(grades["em"], grades["sub_em"], grades["f1"]) for grades in found] == [(1.0, 1.0, 1.0), (0.0, 1.0, 0.5)]
    assert forage.grade("Velm", ["Orlen"])["search_r1_v01"] == 0.0
    assert forage.grade_many([]) == []


@pytest.mark.parametrize(
    ("pair", "error", "told"),
    [
        ((float("nan"), "Velm"), TypeError, "answer is nan; it must be a str"),
        ((None, "Velm"), TypeError, "answer is None; it must be a str"),
        (("Velm", 150), TypeError, "golds is 150; it must be a str or a list of them"),
        (("Velm", None), TypeError, "golds is None; it must be a str"),
        (("Velm", ["Velm", 7]), TypeError, r"golds\[1\] is 7; it must be a str"),
        (("Velm", []), ValueError, "golds is empty; give at least one"),
    ],
)
def test_what_cannot_be_graded_is_named(pair, error, told):
    with pytest.raises(error, match=f"^{told}"):
        forage.grade(*pair)
    with pytest.raises(error, match=rf"^answers\[1\]: {told}"):
        forage.grade_many([("Velm", "Velm"), pair])


@pytest.mark.parametrize("pair", ["ab", ("Velm",), 7, {"answer": "Velm", "gold": "Velm"}])
def test_answers_are_pairs(pair):
    with pytest.raises(TypeError, match=r"^answers\[0\] is .*; it must be a pair of an answer and its golds"):
        forage.grade_many([pair])


def test_a_server_runs_as_long_as_it_is_asked(world):
    with forage.serving("env", *world.arguments) as url:
        client = forage.Client(url)
        assert [task.question for task in client.tasks(limit=2)] == world.questions[:2]
        client.close()
        told = r"serves no retriever; `forage\.Client`"
        with forage.Retriever(url) as retriever, pytest.raises(forage.Invalid, match=told):
            retriever.search("town")
    assert not client.ready()
    with pytest.raises(RuntimeError, match="did not start"), forage.serving("env", "nowhere"):
        pass


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Makes a script the program."""

    def made(script: str) -> None:
        path = tmp_path / "forage"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("FORAGE_BIN", str(path))

    return made


def test_settings_are_written_as_a_config_has_them(stand_in, tmp_path, capsys):
    stand_in('echo "$@" >&2')
    (tmp_path / "metrics.jsonl").touch()
    settings = {"grpo.lookahead": True, "optimizer.rate": 1e-6, "world.hops": [0.7, 0.3], "policy.type": "bf16"}
    forage.quickstart(tmp_path, settings=settings)
    given = "--set grpo.lookahead=true --set optimizer.rate=1e-06 --set world.hops=[0.7, 0.3] --set policy.type=bf16"
    assert given in capsys.readouterr().err


def test_a_quickstart_has_the_options_of_the_command(stand_in, tmp_path, capsys):
    stand_in('echo "$@" >&2')
    (tmp_path / "metrics.jsonl").touch()
    forage.quickstart(tmp_path)
    forage.quickstart(tmp_path, env="query-writer", seed=0, from_scratch=True, resume=True)
    forage.quickstart(tmp_path, config=Path("mine.toml"), settings={"grpo.steps": 2})
    assert capsys.readouterr().err.splitlines() == [
        f"quickstart --out {tmp_path}",
        f"quickstart --out {tmp_path} --env query-writer --seed 0 --from-scratch --resume",
        f"quickstart --out {tmp_path} --config mine.toml --set grpo.steps=2",
    ]


@pytest.mark.parametrize("times", [1, 2])
def test_a_run_that_is_interrupted_saves_its_checkpoint_unless_it_is_interrupted_again(stand_in, tmp_path, times):
    begun, asked, saved = tmp_path / "begun", tmp_path / "asked", tmp_path / "saved"
    # The first takes a moment for its checkpoint, the second would take all day.
    saves = "sleep 0.5" if times == 1 else "while true; do sleep 0.1; done"
    saving = f"touch {asked}; {saves}; touch {saved}; exit 130"
    stand_in(f"trap '{saving}' TERM; touch {begun}; while true; do sleep 0.02; done")

    def interrupts() -> None:
        for file in (begun, asked)[:times]:
            while not file.exists():
                time.sleep(0.01)
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupts, daemon=True)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        forage.quickstart(tmp_path / "run")
    interrupting.join(20)
    assert asked.exists()
    assert saved.exists() == (times == 1)


def test_what_a_server_says_before_it_listens_is_passed_on(stand_in, capsys):
    stand_in('echo "warning: slow" >&2; echo "listening on http://127.0.0.1:1, x" >&2; exec sleep 20')
    with forage.serving("env") as url:
        assert url == "http://127.0.0.1:1"
        assert capsys.readouterr().err == "warning: slow\n"


def test_a_server_listens_where_it_is_told_to(stand_in, capsys):
    stand_in('echo "$@" >&2; echo "listening on http://127.0.0.1:1, x" >&2; exec sleep 20')
    for arguments, expected in (
        (("search-r1", "--pages", 200), "search-r1 --pages 200 --addr 127.0.0.1:0"),
        (("--addr", 8001), "--addr 8001"),
        (("--addr=8001",), "--addr=8001"),
    ):
        with forage.serving("env", *arguments):
            assert capsys.readouterr().err == f"serve env {expected}\n"


def test_what_is_no_text_holds_nothing_up(stand_in, capsys):
    # More than a pipe holds behind it.
    rest = "for i in $(seq 3000); do echo 0123456789012345678901234567890123456789 >&2; done"
    stand_in(f"""printf 'warm \\377 up\\n' >&2; {rest}; echo '{{"em": 1.0}}'""")
    assert forage.grade("Velm", "Velm") == {"em": 1.0}
    assert capsys.readouterr().err.startswith("warm \ufffd up\n")


def test_settings_of_fine_tuning_are_its_config(tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    (tmp_path / "sft.json").write_text('{"epochs": 2}')
    assert forage.Run(tmp_path).config == {"epochs": 2}


def test_a_row_that_is_being_written_is_left_out(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run"):
        forage.Run(tmp_path)
    trained = tmp_path / "trained"
    trained.mkdir()
    (trained / "metrics.jsonl").write_text('{"step": 1}\n{"ste')
    (tmp_path / "verdict.json").write_text(json.dumps({"gain": 0.5}))
    run = forage.Run(tmp_path)
    assert run.parts["trained"].metrics == [{"step": 1}]
    assert list(run.parts["trained"].episodes()) == []
    rollouts = trained / "rollouts"
    rollouts.mkdir()
    (rollouts / "step-000010.jsonl").write_text('{"prompt": "b"}\n{"pro')
    (rollouts / "step-000000.jsonl").write_text('{"prompt": "a\u2028"}\n')
    assert list(run.parts["trained"].episodes()) == [{"step": 0, "prompt": "a\u2028"}, {"step": 10, "prompt": "b"}]
    assert run.verdict == {"gain": 0.5}
    assert run.policy is None


def test_records_of_a_quickstart_are_those_of_its_runs(tmp_path):
    for part, step in (("trained", 1), ("control", 2), ("twins/3", 3)):
        (tmp_path / part / "rollouts").mkdir(parents=True)
        (tmp_path / part / "metrics.jsonl").write_text(f'{{"step": {step}}}\n')
        (tmp_path / part / f"rollouts/step-00000{step}.jsonl").write_text('{"prompt": "a"}\n')
    run = forage.Run(tmp_path)
    assert run.alarms == []
    (tmp_path / "control/alarms.jsonl").write_text('{"step": 2, "metric": "kl"}\n')
    assert run.alarms == [{"part": "control", "step": 2, "metric": "kl"}]
    assert run.parts["control"].alarms == [{"step": 2, "metric": "kl"}]
    rows = [{"part": "trained", "step": 1}, {"part": "control", "step": 2}, {"part": "3", "step": 3}]
    assert run.metrics == rows
    assert list(run.episodes()) == [row | {"prompt": "a"} for row in rows]
    assert run.parts["control"].metrics == [{"step": 2}]
    # With rows of its own it is a run, beside its twins.
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    assert (run.metrics, run.alarms, list(run.episodes())) == ([{"step": 0}], [], [])
    pytest.importorskip("pandas", reason="pandas is not installed")
    (tmp_path / "metrics.jsonl").unlink()
    assert run.frame().to_dict("records") == rows


def test_a_letter_that_is_being_written_is_left_out(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_bytes('{"step": 1}\n{"step": "é'.encode()[:-1])
    assert forage.Run(tmp_path).metrics == [{"step": 1}]
    metrics.write_bytes(b'{"step": 1}\n{"ste\n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl: line 2 is not JSON .*; delete it"):
        _ = forage.Run(tmp_path).metrics


def test_files_are_read_alike_in_every_locale(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    (tmp_path / "config.toml").write_text('name = "é"\n', encoding="utf-8")
    (tmp_path / "verdict.json").write_text('{"name": "é"}\n', encoding="utf-8")
    code = (
        "import forage; run = forage.Run('.'); assert run.config == run.verdict == {'name': '\\xe9'}; list(run.metrics)"
    )
    source = str(Path(forage.__file__).parents[1])
    variables = os.environ | {"PYTHONPATH": source, "PYTHONWARNDEFAULTENCODING": "1"}
    command = [sys.executable, "-W", "error::EncodingWarning", "-c", code]
    ran = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(("package", "extra"), [("pandas", "pandas"), ("matplotlib", "plots")])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, tmp_path, package, extra):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    run = forage.Run(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'forage\[{extra}\]'"):
        run.frame() if package == "pandas" else run.plot("step")


def test_what_trl_needs_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r"datasets is not installed; pip install 'forage\[trl\]'"):
        rows(forage.Client("http://localhost:8000"))


def test_the_version():
    assert forage.__version__


def test_a_command_returns_what_it_prints_or_raises_its_error(stand_in, tmp_path):
    stand_in('echo "$@"')
    assert (
        forage.command("eval", "smoke", "--limit", 20, "--out", tmp_path) == f"eval smoke --limit 20 --out {tmp_path}\n"
    )
    stand_in('echo "note" >&2; echo "error: not so" >&2; exit 2')
    with pytest.raises(RuntimeError, match=r"^forage eval ended with status 2:\nerror: not so$"):
        forage.command("eval")


def test_the_program(world, monkeypatch, tmp_path):
    path = forage.program()
    told = subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout
    assert told.startswith("forage ")
    monkeypatch.setenv("FORAGE_BIN", str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError, match="FORAGE_BIN names"):
        forage.program()


def test_a_quickstart_starts_from_a_config_and_is_resumed(world, tmp_path):
    out, small = tmp_path / "run", {"grpo.steps": 1, "data.test_questions": 10, "evaluation.resamples": 100}
    run = forage.quickstart(out, config="smoke", seed=3, settings=small)
    assert run.config["seed"] == 3
    assert forage.quickstart(out, config="smoke", seed=3, settings=small, resume=True).verdict == run.verdict
    with pytest.raises(RuntimeError, match="cannot be used with"):
        forage.quickstart(tmp_path / "other", env="code-search", config="smoke")


def test_a_quickstart_that_fails_says_so(world, tmp_path, capsys):
    with pytest.raises(RuntimeError, match=r"ended with status 2:\nerror: (?s:.)*unknown field `stepz`"):
        forage.quickstart(tmp_path / "run", settings={"grpo.stepz": 1})
    assert "stepz" in capsys.readouterr().err, "what it says is passed on"


def test_a_served_index_is_searched(world):
    index = world.folder / "searched"
    corpus = str(world.folder / "search-r1/wiki.jsonl")
    build = [BINARY, "index", "build", "--corpus", corpus, "--format", "search-r1", "--out", str(index)]
    subprocess.run(build, check=True, capture_output=True)
    with serving(str(index), kind="retriever") as url:
        with forage.Retriever(url) as retriever:
            found = retriever.search(world.questions[0], k=2)
        assert retriever._http._kept.connection is None
        assert len(found) == 2
        assert found[0].score >= found[1].score
        assert found[0].id
        assert found[0].text
        assert retriever.search_many([world.questions[0], world.questions[1]], k=2)[0] == found
        with pytest.raises(forage.Invalid, match=r"^mode: .*'bm25'"):
            retriever.search("town", mode="clairvoyant")
        with pytest.raises(TypeError, match="`search` takes one query"):
            retriever.search_many("town")
        with pytest.raises(forage.Invalid, match=r"serves no environment; `forage\.Retriever`"):
            forage.Client(url).info()


def test_what_cannot_be_searched_is_named(retriever_url):
    retriever = forage.Retriever(retriever_url)
    for k in (0, -1, True):
        with pytest.raises(ValueError, match=rf"^k is {k}; it must be an int of at least 1"):
            retriever.search("town", k)
    for k in (1.5, "3", None):
        with pytest.raises(TypeError, match=rf"^k is {k!r}; it must be an int"):
            retriever.search("town", k)
    with pytest.raises(forage.Invalid, match=r"^topk: "):
        retriever.search("town", 10**9)
    with pytest.raises(TypeError, match=r"^query is 7; it must be a str"):
        retriever.search(7)
    with pytest.raises(TypeError, match=r"^queries\[1\] is None; it must be a str"):
        retriever.search_many(["town", None])
    with pytest.raises(TypeError, match=r"^queries is None; it must be a list of str"):
        retriever.search_many(None)
    with pytest.raises(ValueError, match=r"^base_url is 7; write it like http://localhost:8000"):
        forage.Retriever(7)


def test_importing_brings_no_other_package():
    others = ("numpy", "pandas", "matplotlib", "wandb", "gymnasium", "torch")
    code = f"import sys, forage; print([name for name in {others} if name in sys.modules])"
    source = str(Path(forage.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": source},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "[]\n"
