"""verl: an agent loop.

In a YAML file that `actor_rollout_ref.rollout.agent.agent_loop_config_path` names:

```
- name: forage
  _target_: forage.verl.ForageAgentLoop
  base_url: http://localhost:8000
```

The rows need `agent_name: forage` (or it is the default agent loop) and `task_id` or `task_index`, at the top or in `extra_info`;
`seed` may stand there too. What verl has as the prompt is replaced by the environment's.

A sample of verl's always has a reward. So a fault is played anew, up to three times, and then raised, which ends verl's step:
better than a reward of 0 that nobody earned.

It ran in verl 0.9.1 on the processor: verl's own data set, agent loop workers and load balancer under Ray, with a policy
server where verl has vLLM or SGLang (`tests/test_real_verl.py`). What follows a batch of episodes, verl's update, did not.
"""

import os
import time
from functools import lru_cache
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from .client import Client
from .tokens import Codec, Episode, Generation, Threads, play
from .wire import Finish, Info

__all__ = ["ForageAgentLoop"]

ATTEMPTS = 3
"""How often an episode is played before its fault is taken for lasting."""

_CALLS = 256


@lru_cache(maxsize=8)
def _server(base_url: str, token: str | None) -> tuple[Client, Info, Threads]:
    """Once for a worker: verl makes an agent loop for each sample."""
    client = Client(base_url, token, patience=600.0)
    return client, client.info(), Threads(_CALLS)


# Not `@register`: run at the import, it would put an entry without arguments in the place of the YAML file's.
class ForageAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays one sample's episode, ids in and ids out."""

    def __init__(self, *args: Any, base_url: str, chat: bool = False, **kwargs: Any) -> None:
        """For one sample.

        Args:
            args: verl's.
            base_url: of the environment server; its token is taken from FORAGE_TOKEN.
            chat: whether the opening prompt is the user's message in the tokenizer's chat template.
            kwargs: verl's.
        """
        super().__init__(*args, **kwargs)
        self._server = _server(base_url, os.environ.get("FORAGE_TOKEN"))
        self._codec = Codec(self.tokenizer, chat=chat)
        # verl does not tell which token ended a turn. Models have others than the tokenizer's own, and all of them are special.
        self._ends = {self._codec.eos, *self.tokenizer.all_special_ids}
        rollout = self.config.actor_rollout_ref.rollout
        self._prompt_length, self._response_length = int(rollout.prompt_length), int(rollout.response_length)
        # SGLang takes no parameter it does not know.
        keep = "no_stop_trim" if rollout.name == "sglang" else "include_stop_str_in_output"
        self._kept = {keep: True}

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """Plays the episode of a row.

        Args:
            sampling_params: verl's, passed on with the limit of new tokens and the stop strings.
            kwargs: the row's fields.

        Returns:
            verl's `AgentLoopOutput`: `response_mask` is 1 where the policy sampled, `response_logprobs` has 0.0 elsewhere,
            both of the length of `response_ids`; `reward_score` is the episode's.

        Raises:
            ValueError: the row names no task, or the environment's prompt is longer than verl's `prompt_length` or leaves no token
                for a turn.
            Fault: it lasted over three attempts.
        """
        client, info, threads = self._server
        row = dict(kwargs.get("extra_info") or {}) | kwargs
        task = {key: row[key] for key in ("task_id", "task_index", "seed") if row.get(key) is not None}
        if not {"task_id", "task_index"} & task.keys():
            raise ValueError("a row has neither `task_id` nor `task_index`, at the top or in `extra_info`")
        task = {key: value if isinstance(value, str) else int(value) for key, value in task.items()}
        request_id, sampled_s = uuid4().hex, 0.0

        async def turn(episode: Episode) -> Generation:
            nonlocal sampled_s
            begin = time.monotonic()
            if (length := len(episode.transcript.prompt_ids)) > self._prompt_length:
                raise ValueError(
                    f"the environment's prompt has {length} tokens, and actor_rollout_ref.rollout.prompt_length is "
                    f"{self._prompt_length}; raise data.max_prompt_length"
                )
            limits = {"max_tokens": episode.room, "stop": list(info.stop), **self._kept}
            output = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=episode.context,
                sampling_params=sampling_params | limits | {"logprobs": True},
            )
            sampled_s += time.monotonic() - begin
            return _generation(output, episode.room, self._ends)

        begin = time.monotonic()
        episode = await play(
            client, self._codec, info, turn, threads, attempts=ATTEMPTS, max_response=self._response_length, **task
        )
        transcript, observation = episode.transcript, episode.observation
        return AgentLoopOutput(
            prompt_ids=transcript.prompt_ids,
            response_ids=transcript.response_ids,
            response_mask=transcript.mask,
            response_logprobs=transcript.logprobs,
            reward_score=episode.reward,
            num_turns=2 * observation.turn,
            metrics=AgentLoopMetrics(
                generate_sequences=sampled_s, tool_calls=max(time.monotonic() - begin - sampled_s, 0.0)
            ),
            extra_fields={"forage_score": dict(observation.score.parts) if observation.score else {}},
        )


def _generation(output: Any, room: int, ends: set[int | None]) -> Generation:
    """From verl's `TokenOutput`.

    Raises:
        RuntimeError: the engine gave up, or gave no log-probabilities.
    """
    if getattr(output, "stop_reason", None) in ("aborted", "abort"):  # vLLM's word, SGLang's
        raise RuntimeError("the engine aborted a turn; its episode has no reward, and a sample of verl's needs one")
    ids = [int(token) for token in output.token_ids]
    if output.log_probs is None:
        raise RuntimeError(
            "the engine gave no log-probabilities; set actor_rollout_ref.rollout.calculate_log_probs=true"
        )
    finish: Finish = "eos" if ids and ids[-1] in ends else "length" if len(ids) >= room else "stop"
    return Generation(ids, [float(logprob) for logprob in output.log_probs], finish)
