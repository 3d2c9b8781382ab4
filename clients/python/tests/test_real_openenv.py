"""OpenEnv's own clients: the generic one over its WebSocket, in step and asynchronous, with a typed subclass."""

import asyncio
from dataclasses import dataclass

import pytest

pytest.importorskip("openenv", reason="openenv is not installed")

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.generic_client import GenericAction, GenericEnvClient


def test_an_episode_in_step(url, world):
    with GenericEnvClient(base_url=url).sync() as env:
        begun = env.reset(task_index=2, seed=7)
        assert world.questions[2] in begun.observation["text"]
        assert (begun.reward, begun.done) == (None, False)
        found = env.step(GenericAction(text="<search>town</search>"))
        assert "<information>" in found.observation["text"]
        assert env.state()["step_count"] == 1
        end = env.step(GenericAction(text=f"<answer>{world.golds[2]}</answer>"))
        assert (end.reward, end.done) == (1.0, True)
        with pytest.raises(RuntimeError, match="is over"):
            env.step(GenericAction(text="more"))
        assert env.reset(task_index=0).observation["question"] == world.questions[0]


@dataclass
class Turn:
    text: str


class Typed(EnvClient[Turn, str, int]):
    """As OpenEnv's environments ship one: an action, an observation and a state of their own."""

    def _step_payload(self, action: Turn) -> dict:
        return vars(action)

    def _parse_result(self, payload: dict) -> StepResult[str]:
        return StepResult(payload["observation"]["text"], reward=payload.get("reward"), done=payload.get("done", False))

    def _parse_state(self, payload: dict) -> int:
        return payload["step_count"]


def test_many_typed_clients_at_once(url, world):
    async def play(place: int) -> tuple[bool, float]:
        async with Typed(base_url=url) as env:
            begun = await env.reset(task_index=place)
            await env.step(Turn("<search>town</search>"))
            assert await env.state() == 1
            end = await env.step(Turn(f"<answer>{world.golds[place]}</answer>"))
            return world.questions[place] in begun.observation, end.reward

    async def all_of_them() -> list[tuple[bool, float]]:
        return await asyncio.gather(*map(play, range(16)))

    assert asyncio.run(all_of_them()) == [(True, 1.0)] * 16


def test_a_fault_is_no_reward(dead_url):
    with GenericEnvClient(base_url=dead_url).sync() as env:
        env.reset(task_index=0)
        with pytest.raises(RuntimeError, match="EXECUTION_ERROR"):
            env.step({"text": "<search>town</search>"})
        env.reset(task_index=0)
        assert env.step({"text": "<answer>x</answer>"}).reward == 0.0
