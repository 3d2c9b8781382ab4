"""verifiers 0.4's own loop, limits and errors; the model is an endpoint of OpenAI's shape that writes a script."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

vf = pytest.importorskip("verifiers.v1", reason="verifiers 0.4 is not installed")
if not hasattr(vf, "Interaction"):
    pytest.skip("verifiers is older than 0.4", allow_module_level=True)

import forage_verifiers  # noqa: E402


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("NO_KEY", "none")


def loaded(url: str, **settings):
    """The environment, as verifiers' command line makes it."""
    config = {"taskset": {"id": "forage-verifiers", "base_url": url}, **settings}
    return vf.load_environment(vf.resolve_env_config(config))


def evaluated(environment, model, examples: int, **sampling):
    """The questions' episodes."""

    async def all_of_them():
        client = vf.EvalClientConfig(base_url=model.url, api_key_var="NO_KEY")
        asked = vf.ModelContext(model="m", client=client, sampling=vf.SamplingConfig(**sampling))
        async with environment.serving():
            tasks = environment.taskset.take(examples)
            return await asyncio.gather(*(environment.run_episode(task, asked) for task in tasks))

    return asyncio.run(all_of_them())


def test_episodes_are_played_and_scored(url, world, model):
    model.script = world.searched_then_answered
    episodes = evaluated(loaded(url), model, 4)
    assert all(episode.ok for episode in episodes)
    traces = [trace for episode in episodes for trace in episode.traces]
    rewards = {trace.task.key: trace.reward for trace in traces}
    assert rewards == {"fw-train-0": 0.0, "fw-train-1": 1.0, "fw-train-2": 0.0, "fw-train-3": 1.0}
    assert all(trace.metrics["em"] == trace.reward for trace in traces)
    assert [trace.task.data.description for trace in traces] == world.questions[:4]
    # One conversation each, and not a branch for each turn.
    assert all(trace.num_branches == 1 and trace.num_turns == 2 for trace in traces)
    assert all(len(body["messages"]) in (1, 3) for body in model.asked)
    assert all("<information>" in body["messages"][2]["content"] for body in model.asked if len(body["messages"]) == 3)


def test_the_model_is_asked_to_end_turns_where_the_environment_does(url, model):
    model.script = lambda messages: "<answer>Ada</answer>"
    evaluated(loaded(url), model, 1)
    (body,) = model.asked
    assert "</search>" in body["stop"]
    assert body["include_stop_str_in_output"] is body["no_stop_trim"] is True
    assert body["max_tokens"] > 0
    model.asked.clear()
    evaluated(loaded(url, keep_stop=False), model, 1, max_tokens=7, stop=["</answer>"])
    (body,) = model.asked
    assert (body["max_tokens"], body["stop"]) == (7, ["</answer>"])
    assert not {"include_stop_str_in_output", "no_stop_trim"} & body.keys()


def test_an_engine_of_a_trainer_is_asked_for_what_vllm_knows(url):
    client = vf.TrainClientConfig(base_url="http://127.0.0.1:9", api_key_var="NO_KEY")
    asked = vf.ModelContext(model="m", client=client, sampling=vf.SamplingConfig())
    asyncio.run(loaded(url).setup(SimpleNamespace(agent=SimpleNamespace(ctx=asked))))
    assert asked.sampling.model_extra == {"stop": ["</search>", "</answer>"], "include_stop_str_in_output": True}


def test_turns_that_are_paid_are_paid_once(paid_url, model):
    model.script = lambda messages: "<search>Ada</search>" if len(messages) == 1 else "<answer>Ada</answer>"
    (episode,) = evaluated(loaded(paid_url), model, 1)
    assert episode.traces[0].reward == 1.0


def test_a_model_that_rambles_is_scored_as_it_is(url, model):
    model.script = lambda messages: "I wonder."
    (episode,) = evaluated(loaded(url), model, 1)
    assert episode.ok
    assert episode.traces[0].reward == 0.0


def test_an_episode_at_the_limit_of_verifiers_is_scored_as_truncated(url, world, model):
    model.script = lambda messages: "<search>town</search>"
    (episode,) = evaluated(loaded(url, agent={"max_turns": 1}), model, 1)
    (trace,) = episode.traces
    assert (trace.stop_condition, trace.num_turns) == ("max_turns", 1)
    assert trace.rewards["episode"].score == 0.0
    assert episode.ok


def test_a_fault_is_an_error_and_no_reward(dead_url, model):
    model.script = lambda messages: "<search>town</search>"
    (episode,) = evaluated(loaded(dead_url), model, 1)
    (trace,) = episode.traces
    assert not episode.ok
    assert not trace.ok
    assert not trace.rewards
    assert "retriever" in episode.errors[-1].message


def test_a_model_that_fails_is_an_error_and_gives_its_place_back(world, model):
    from conftest import serving

    from forage import Client

    def script(messages) -> str:
        raise ConnectionError

    model.script = script
    with serving(*world.arguments, "--max-sessions", "1") as url:
        (episode,) = evaluated(loaded(url), model, 1)
        assert not episode.ok
        assert not episode.traces[0].rewards
        Client(url).reset().close()


def test_questions_are_read_as_they_are_asked_for(url):
    taskset = loaded(url).taskset
    assert isinstance(taskset, forage_verifiers.ForageTaskset)
    assert [task.key for task in taskset.skip(2).take(2)] == ["fw-train-2", "fw-train-3"]
    assert [task.data.idx for task in taskset.include(ids=["fw-train-5"])] == [5]


def test_the_command_line_finds_it(url, world, model, tmp_path):
    model.script = lambda messages: f"<answer>{world.golds[0]}</answer>"
    command = [sys.executable, "-c", "from verifiers.v1.cli.eval.main import main; main()", "forage-verifiers"]
    options = {
        "env.taskset.base-url": url,
        "select.limit": "2",
        "model": "m",
        "client.base-url": model.url,
        "client.api-key-var": "NO_KEY",
        "env.keep-stop": "false",
        "output-dir": str(tmp_path),
    }
    asked = command + [part for name, value in options.items() for part in (f"--{name}", value)]
    found = os.environ | {"PYTHONPATH": str(Path(forage_verifiers.__file__).parents[1])}
    done = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, timeout=300, env=found)
    assert done.returncode == 0, done.stdout + done.stderr
    (records,) = tmp_path.rglob("traces.jsonl")
    rewards = [json.loads(line) for line in records.read_text().splitlines()]
    assert len(rewards) == 2
    assert "no_stop_trim" not in model.asked[0]
