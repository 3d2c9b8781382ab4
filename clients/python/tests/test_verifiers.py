"""verifiers' own loop, scoring and errors; the model is an endpoint of OpenAI's shape that writes a script."""

import asyncio
import json
import math
import threading
from types import SimpleNamespace

import pytest

vf = pytest.importorskip("verifiers", reason="verifiers is not installed")
if not hasattr(vf, "MultiTurnEnv"):
    pytest.skip("verifiers is newer than 0.2", allow_module_level=True)

from openai import AsyncOpenAI  # noqa: E402

from forage.verifiers import ForageFault, load_environment  # noqa: E402


def evaluated(environment, model, examples: int, **kwargs):
    """The rollouts' outputs."""
    from verifiers.clients import OpenAIChatCompletionsClient

    async def all_of_them():
        client = OpenAIChatCompletionsClient(AsyncOpenAI(base_url=model.url, api_key="none"))
        return await environment.evaluate(client, "m", num_examples=examples, rollouts_per_example=1, **kwargs)

    return asyncio.run(all_of_them())["outputs"]


def test_episodes_are_played_and_scored(url, world, model):
    model.script = world.searched_then_answered
    outputs = evaluated(load_environment(url, limit=4), model, 4)
    rewards = {output["info"]["task_id"]: output["reward"] for output in outputs}
    assert rewards == {"fw-train-0": 0.0, "fw-train-1": 1.0, "fw-train-2": 0.0, "fw-train-3": 1.0}
    assert all(len(body["messages"]) in (1, 3) for body in model.asked)
    assert all("<information>" in body["messages"][2]["content"] for body in model.asked if len(body["messages"]) == 3)
    assert model.asked[0]["max_completion_tokens"] > 0


def test_turns_that_are_paid_are_paid_once(paid_url, model):
    model.script = lambda messages: "<search>Ada</search>" if len(messages) == 1 else "<answer>Ada</answer>"
    (output,) = evaluated(load_environment(paid_url, limit=1), model, 1)
    assert output["reward"] == 1.0


def test_a_model_that_rambles_is_scored_as_it_is(url, model):
    model.script = lambda messages: "I wonder."
    (output,) = evaluated(load_environment(url, limit=1), model, 1)
    assert output["reward"] == 0.0
    assert output.get("error") is None


def test_an_episode_that_is_being_begun_is_left_when_its_rollout_is_cancelled(url, monkeypatch):
    environment = load_environment(url, limit=1)
    begins, goes_on, closed = threading.Event(), threading.Event(), threading.Event()

    def reset(**task):
        begins.set()
        assert goes_on.wait(20)
        return SimpleNamespace(close=closed.set)

    monkeypatch.setattr(environment._client, "reset", reset)

    async def cancelled():
        setting_up = asyncio.create_task(environment.setup_state({"info": {"task_id": "fw-train-0"}}))
        while not begins.is_set():
            await asyncio.sleep(0.01)
        setting_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await setting_up

    asyncio.run(cancelled())
    goes_on.set()
    assert closed.wait(20)


def test_a_fault_is_an_infra_error_and_no_reward(dead_url, model):
    model.script = lambda messages: "<search>town</search>"
    (output,) = evaluated(load_environment(dead_url, limit=1), model, 1)
    assert math.isnan(output["reward"])
    assert "retriever" in json.dumps(output["error"], default=str)
    assert issubclass(ForageFault, vf.InfraError)
