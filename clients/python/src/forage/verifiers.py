"""verifiers: a `MultiTurnEnv` (the series 0.2; 0.3 moved that class and 0.4 dropped it).

```
from forage.verifiers import load_environment
env = load_environment(base_url="http://localhost:8000")
env.evaluate_sync(client=..., model=..., num_examples=20)
```

The opening prompt is the user's first message, what the environment writes is a user's message each. The model ends a turn at the
environment's stop strings, which are in the sampling arguments; vLLM, SGLang and `forage serve policy` are asked to keep them,
and where an engine cuts one off, it is put back. An endpoint that refuses those requests by name, as OpenAI's does, is asked
with `sampling_args={"extra_body": {}}`. A fault is verifiers' `InfraError` in `state["error"]`, which `max_retries` plays anew
and trainers mask; its reward is NaN, never 0.
"""

import asyncio
import math
from functools import partial
from typing import Any

import verifiers as vf
from datasets import Dataset

from .client import Client, Session
from .errors import Fault
from .tokens import Threads
from .wire import Finish, Step

__all__ = ["ForageEnvironment", "ForageFault", "load_environment"]

_CALLS = 256


class ForageFault(vf.InfraError):  # type: ignore[misc]
    """The environment server, or something behind it, failed."""


async def episode_reward(state: Any) -> float:
    """What the episode brought; NaN where it was not scored."""
    reward = state.get("forage_reward")
    return math.nan if reward is None else float(reward)


class ForageEnvironment(vf.MultiTurnEnv):  # type: ignore[misc]
    """Episodes of the server, one for each rollout."""

    def __init__(self, client: Client, *, limit: int | None = None, **kwargs: Any) -> None:
        """Reads the questions.

        Args:
            client: of the server.
            limit: most questions.
            kwargs: those of `vf.MultiTurnEnv`.
        """
        self._client = client
        info = client.info()
        self._served = info
        self._threads = Threads(_CALLS)
        rows = [
            {
                "prompt": [{"role": "user", "content": task.question}],
                "answer": "",
                "info": {"task_id": task.task_id},
            }
            for task in client.tasks(limit)
        ]
        sampling = {
            "stop": list(info.stop),
            "max_tokens": info.max_turn_tokens,
            "extra_body": {"include_stop_str_in_output": True, "no_stop_trim": True},
        } | dict(kwargs.pop("sampling_args", None) or {})
        super().__init__(
            eval_dataset=Dataset.from_list(rows),
            dataset=Dataset.from_list(rows),
            rubric=vf.Rubric(funcs=[episode_reward]),
            sampling_args=sampling,
            max_turns=-1,
            **kwargs,
        )

    async def setup_state(self, state: Any) -> None:
        """Begins the rollout's episode; its opening prompt takes the place of the question."""
        task_id = state["info"]["task_id"]
        begun = self._threads.begin(partial(self._client.reset, task_id=task_id))
        try:
            session: Session = await asyncio.wrap_future(begun)
        except Fault as fault:
            raise ForageFault(f"{fault.cause}: {fault}") from fault
        except asyncio.CancelledError:
            # Begun or not, nobody else knows of it.
            await self._threads.leave(begun)
            raise
        state["forage_session"] = session
        state["prompt"] = [vf.UserMessage(role="user", content=session.observation.text)]

    async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
        """The environment's answer to the model's last message."""
        step: Step = state["forage_step"]
        return [vf.UserMessage(role="user", content=step.observation.text)]

    async def add_trajectory_step(self, state: Any, trajectory_step: Any) -> None:
        """Takes the turn at once, so that an episode is scored when the model has written its last one."""
        await super().add_trajectory_step(state, trajectory_step)
        session: Session = state["forage_session"]
        text, finish = self._turn(trajectory_step)
        step: Step = await self._call(partial(session.step, text, finish))
        state["forage_step"] = step
        if step.done:
            state["forage_reward"] = session.reward
            state["forage_score"] = dict(step.observation.score.parts) if step.observation.score else {}

    def _turn(self, trajectory_step: Any) -> tuple[str, Finish | None]:
        """What the model wrote, with the stop string that an engine cut off."""
        text = str(trajectory_step["completion"][-1].content or "")
        return (text, "length") if trajectory_step["is_truncated"] else (self._served.restored(text), None)

    async def _call(self, call: Any) -> Any:
        try:
            return await self._threads.call(call)
        except Fault as fault:
            raise ForageFault(f"{fault.cause}: {fault}") from fault

    @vf.stop  # type: ignore[untyped-decorator]
    async def episode_over(self, state: Any) -> bool:
        """Whether the environment ended it."""
        step: Step | None = state.get("forage_step")
        return step is not None and step.done

    @vf.cleanup  # type: ignore[untyped-decorator]
    async def leave(self, state: Any) -> None:
        """Ends an episode that verifiers ended, as truncated, and gives the place back."""
        session: Session | None = state.pop("forage_session", None)
        step: Step | None = state.pop("forage_step", None)
        if session is None or (step is not None and step.done):
            return
        try:
            if state.get("error") is None:
                await self._call(partial(session.step, "", "context"))
                state["forage_reward"] = session.reward
            await self._call(session.close)
        except ForageFault as fault:
            state["error"] = state.get("error") or fault


def load_environment(
    base_url: str, token: str | None = None, *, limit: int | None = None, **kwargs: Any
) -> ForageEnvironment:
    """verifiers' entry point; `kwargs` are those of `vf.MultiTurnEnv`."""
    return ForageEnvironment(Client(base_url, token, patience=600.0), limit=limit, **kwargs)
