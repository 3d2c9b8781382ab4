"""verifiers 0.4: a taskset, its environment and a harness.

```
vf-eval forage-verifiers --env.taskset.base-url http://localhost:8000 --select.limit 20 \
    --model MODEL --client.base-url http://localhost:9000/v1
```

verifiers finds a taskset by the name of a module, so this one stands beside the package `forage`. The questions are the server's
list; each rollout is an episode. The opening prompt is the user's first message, and what the environment writes is a user's
message each. The harness asks for one completion per turn, in verifiers' own process: verifiers' programs would be started anew
for every turn. The model ends a turn at the environment's stop strings, which are in its sampling settings unless the run has its
own; vLLM, SGLang and `forage serve policy` are asked to keep them, and where an engine cuts one off, it is put back. An endpoint
that refuses those requests by name, as OpenAI's does, is asked without them by `--env.keep-stop false`.

A fault of the server ends the episode with an error (`ok` is false) and without a reward; `--env.retries.max-retries` plays it
anew. Where verifiers ends it at a limit (`--env.agent.max-turns`), it is scored as truncated. The server's token is that of
FORAGE_TOKEN: verifiers writes the config down.
"""

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import verifiers.v1 as vf
from openai import AsyncOpenAI
from verifiers.v1.dialects.chat import message_to_wire

from forage.client import Client, Session
from forage.tokens import Threads
from forage.wire import Info

__all__ = ["ForageEnv", "ForageHarness", "ForageTaskset"]

_CALLS = 256


class ForageConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Settings of the taskset."""

    base_url: str = "http://localhost:8000"
    """Address of the environment server."""


class ForageData(vf.TaskData):  # type: ignore[misc]
    """A question; its `id` is the server's, and its `description` the question's text."""


class ForageTask(vf.Task[ForageData]):  # type: ignore[misc]
    """A question that may be asked."""

    @property
    def key(self) -> str:
        """The server's id, which stays when the order of the questions does not."""
        return str(self.data.id)


class ForageTaskset(vf.Taskset[ForageTask, ForageConfig]):  # type: ignore[misc]
    """The server's questions."""

    def load(self) -> Iterator[ForageTask]:
        """Reads them page by page, as they are asked for."""
        for task in _client(self.config).tasks():
            data = ForageData(id=task.task_id, name=task.task_id, description=task.question)
            yield ForageTask(data, self.config.task)


class ForageHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """Asks for one completion per turn."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
    ) -> Any:
        """The model's answer to the conversation so far, which verifiers records on its way through `endpoint`."""
        system, prompt = self.resolve_prompt(data)
        messages: list[Any] = [] if system is None else [{"role": "system", "content": system}]
        messages += map(message_to_wire, [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else prompt or [])
        async with AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            await client.chat.completions.create(model=ctx.model, messages=messages)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class ForageEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """Settings of the environment."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The policy. It has no tools and runs nothing, so it needs no sandbox."""
    keep_stop: bool = True
    """Whether the engine is asked to keep the stop string at the end of a turn, by the names that vLLM and SGLang have for that."""


class ForageEnv(vf.Env[ForageEnvConfig]):  # type: ignore[misc]
    """Episodes of the server, one for each rollout."""

    def __init__(self, config: Any) -> None:
        """Asks the server what it serves."""
        super().__init__(config)
        self._client = _client(config.taskset)
        self._info: Info = self._client.info()
        self._threads = Threads(_CALLS)

    async def setup(self, agents: Any) -> None:
        """Adds the environment's stop strings and limit of new tokens to the sampling settings, where the run has none."""
        asked = agents.agent.ctx
        limits: dict[str, Any] = {"stop": list(self._info.stop)}
        if self.config.keep_stop:
            limits["include_stop_str_in_output"] = True
            # The engine that a trainer asks in tokens is vLLM, and takes no parameter it does not know.
            if not isinstance(asked.client, vf.TrainClientConfig):
                limits["no_stop_trim"] = True
        own = asked.sampling.model_extra or {}
        for name, value in limits.items():
            if name not in own:
                setattr(asked.sampling, name, value)
        if asked.sampling.max_tokens is None:
            asked.sampling.max_tokens = self._info.max_turn_tokens

    async def run(self, task: Any, agents: Any) -> None:
        """Plays the question's episode, and gives its place back wherever it ends."""
        begun = self._threads.begin(partial(self._client.reset, task_id=task.data.id))
        try:
            session = await asyncio.wrap_future(begun)
            async with agents.agent.interaction(task) as interaction:
                await self._play(session, interaction)
        finally:
            await self._threads.leave(begun)
        trace, score = interaction.trace, session.observation.score
        if score is not None:
            trace.record_reward("episode", score.total)
            trace.record_metrics(score.parts)

    async def _play(self, session: Session, interaction: Any) -> None:
        while not session.observation.done:
            segment = await interaction.turn(session.observation.text)
            if not segment.terminated:
                written, cut = str(segment.messages[-1].content or ""), interaction.trace.calls[-1].finish_reason
                step = partial(session.step, self._info.restored(written), "length" if cut == "length" else None)
            elif interaction.trace.last_error is None:
                # verifiers' own limit.
                step = partial(session.step, "", "context")
            else:
                return
            await self._threads.call(step)


def _client(config: Any) -> Client:
    return Client(config.base_url, os.environ.get("FORAGE_TOKEN"), patience=600.0)
