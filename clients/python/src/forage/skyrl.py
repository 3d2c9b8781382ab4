"""SkyRL-gym: an environment for SkyRL's trainer.

```
import forage.skyrl
forage.skyrl.register()   # then environment.env_class=forage
```

The server is that of FORAGE_URL, its token that of FORAGE_TOKEN: SkyRL's config has no place for settings of others. Rows need
`task_id` or `task_index`, at the top or in `extra_info`; `seed` may stand there too. The environment's prompt takes the place of
the row's; the episode's reward comes with the last turn, and 0 with the others. A fault is raised, which ends SkyRL's step: it
has no way to leave a trajectory without a reward. SkyRL's engine must end turns at the environment's stop strings
(`generator.sampling_params.stop`; `forage serve env` shows them in `/info`) and keep them.

The class ran in SkyRL-gym 0.4.0, made by its registry, with a policy server that samples; SkyRL's trainer needs GPUs.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from .client import Client, Session
from .wire import Info

__all__ = ["ForageEnv", "register"]


@lru_cache(maxsize=8)
def _server(url: str | None, token: str | None) -> tuple[Client, Info]:
    """Once for a process: SkyRL makes an environment for each trajectory."""
    if not url:
        raise RuntimeError("FORAGE_URL is not set; write the environment server's address, like http://localhost:8000")
    client = Client(url, token, patience=600.0)
    return client, client.info()


class ForageEnv(BaseTextEnv):  # type: ignore[misc]
    """One trajectory's episode."""

    def __init__(self, env_config: Mapping[str, Any], extras: Mapping[str, Any]) -> None:
        """Opens nothing yet.

        Args:
            env_config: SkyRL's, without effect.
            extras: the row's fields.

        Raises:
            RuntimeError: FORAGE_URL is not set.
            ValueError: the row names no task; the trajectories of a group would have different questions.
        """
        super().__init__()
        row = dict(extras.get("extra_info") or {}) | dict(extras)
        self._task = {key: row[key] for key in ("task_id", "task_index", "seed") if row.get(key) is not None}
        if not {"task_id", "task_index"} & self._task.keys():
            raise ValueError("a row has neither `task_id` nor `task_index`, at the top or in `extra_info`")
        self._client, info = _server(os.environ.get("FORAGE_URL"), os.environ.get("FORAGE_TOKEN"))
        self.max_turns = info.max_turns
        self._session: Session | None = None

    def init(self, prompt: Any) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Begins the episode; its opening prompt takes the place of `prompt`."""
        self._session = self._client.reset(**self._task)
        seen = self._session.observation
        return [{"role": "user", "content": seen.text}], {"task_id": seen.task_id, "stop": list(seen.stop)}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Takes a turn.

        Raises:
            Fault: the episode has no reward.
        """
        if self._session is None:
            raise RuntimeError("`init` comes before `step`")
        step = self._session.step(action)
        self.turns = step.observation.turn
        shown = [] if step.done else [{"role": "user", "content": step.observation.text}]
        # What the environment pays for turns is in the score as far as it counts; SkyRL adds up the rewards of steps.
        reward = self._session.reward or 0.0
        return BaseTextEnvStepOutput(observations=shown, reward=reward, done=step.done, metadata={})

    def get_metrics(self) -> dict[str, Any]:
        """The episode's rewards by name, and its turns."""
        seen = None if self._session is None else self._session.observation
        if seen is None or seen.score is None:
            return {}
        return {"turns": seen.turn, **seen.score.parts}

    def close(self) -> None:
        """Gives the place back, wherever the episode is."""
        if self._session is not None:
            self._session.close()


def register(name: str = "forage") -> None:
    """Makes it known to SkyRL-gym, in the process that makes environments."""
    skyrl_gym.register(id=name, entry_point=f"{__name__}:ForageEnv")
