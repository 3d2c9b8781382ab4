"""slime: a custom generate function.

```
FORAGE_URL=http://localhost:8000 FORAGE_TOKEN=... python train.py ... \\
    --custom-generate-function-path forage.slime.generate \\
    --dynamic-sampling-filter-path forage.slime.keep_scored
```

The rows need `task_id` or `task_index` in their metadata (`--metadata-key`), so that a group plays one question; `seed` and
`member` may stand there too. What slime has as the prompt is replaced by the environment's. With `--apply-chat-template` the
opening prompt is the user's message in the tokenizer's chat template.

A fault that lasts over three attempts makes a sample `FAILED`, takes it out of the loss (`remove_sample`) and gives it the
reward NaN, never 0: `keep_scored` drops its group and slime samples another one in its place.

slime itself needs GPUs. This module was run against small stand-ins for the parts of slime it calls (`GenerateState`, `post`,
`Sample`, in the shapes slime published in August 2026), with the real environment server behind it; not inside of slime.
"""

import math
import os
from functools import lru_cache
from typing import Any

from .client import Client
from .errors import Fault
from .tokens import Codec, Episode, Generation, Threads, Transcript, play
from .wire import Finish, Info

__all__ = ["generate", "keep_scored"]

ATTEMPTS = 3
"""How often an episode is played before its fault is taken for lasting."""

_CALLS = 256


@lru_cache(maxsize=1)
def _server() -> tuple[Client, Info, Threads]:
    """The server that the surroundings name; once for a process."""
    url = os.environ.get("FORAGE_URL")
    if not url:
        raise RuntimeError("FORAGE_URL is not set; write the environment server's address, like http://localhost:8000")
    client = Client(url, os.environ.get("FORAGE_TOKEN"), patience=600.0)
    return client, client.info(), Threads(_CALLS)


async def generate(args: Any, sample: Any, sampling_params: dict[str, Any]) -> Any:
    """Plays a sample's episode with slime's engine and fills the sample.

    Sets `prompt`, `tokens` (prompt and response), `response`, `response_length`, `loss_mask` and `rollout_log_probs` (both of
    the response's length), `reward`, `status`.

    Args:
        args: slime's; `sglang_router_ip`, `sglang_router_port` and `apply_chat_template` are read.
        sample: slime's `Sample`.
        sampling_params: of SGLang; its `max_new_tokens` is for a turn, beside the server's own limits.

    Raises:
        RuntimeError: FORAGE_URL is not set, or the sample's metadata names no task.
        Refused: the request was wrong, for instance an unknown task.
        ValueError: the environment's prompt leaves no token for a turn.
    """
    from slime.rollout.sglang_rollout import GenerateState
    from slime.utils.http_utils import post

    client, info, threads = _server()
    codec = Codec(GenerateState(args).tokenizer, chat=bool(getattr(args, "apply_chat_template", False)))
    task = {key: sample.metadata[key] for key in ("task_id", "task_index", "seed", "member") if key in sample.metadata}
    if not {"task_id", "task_index"} & task.keys():
        raise RuntimeError(
            "a sample's metadata has neither `task_id` nor `task_index`; name its column with --metadata-key"
        )
    if sample.index is not None:
        task.setdefault("member", sample.index)
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"

    async def turn(episode: Episode) -> Generation | None:
        most = min(episode.room, sampling_params.get("max_new_tokens", episode.room))
        limits = {"max_new_tokens": most, "stop": list(info.stop), "no_stop_trim": True}
        body = {"input_ids": episode.context, "sampling_params": sampling_params | limits, "return_logprob": True}
        meta = (await post(url, body))["meta_info"]
        how = meta["finish_reason"]
        if how["type"] == "abort":
            return None
        pairs = meta["output_token_logprobs"]
        ids = [int(pair[1]) for pair in pairs]
        return Generation(ids, [float(pair[0]) for pair in pairs], _finish(how, ids, codec.eos))

    status = type(sample).Status
    try:
        episode = await play(client, codec, info, turn, threads, attempts=ATTEMPTS, **task)
    except Fault as fault:
        # One token that counts for nothing: slime does not take empty responses.
        end = codec.eos or 0
        _fill(sample, Transcript([end], [end], [0], [0.0]), codec)
        sample.metadata["forage_fault"] = fault.cause
        sample.status, sample.remove_sample, sample.reward = status.FAILED, True, math.nan
        return sample
    _fill(sample, episode.transcript, codec)
    sample.prompt = codec.decode(episode.transcript.prompt_ids)
    sample.reward = episode.reward
    if episode.reward is None:
        sample.status = status.ABORTED
    else:
        sample.status = status.TRUNCATED if episode.observation.truncated else status.COMPLETED
    return sample


def _finish(how: dict[str, Any], ids: list[int], eos: int | None) -> Finish:
    """SGLang's reason: `stop` has what matched, a string or a token's id."""
    if how["type"] == "length":
        return "length"
    return "eos" if isinstance(how.get("matched"), int) or (ids and ids[-1] == eos) else "stop"


def _fill(sample: Any, transcript: Transcript, codec: Codec) -> None:
    sample.tokens = transcript.prompt_ids + transcript.response_ids
    sample.response = codec.decode(transcript.response_ids)
    sample.response_length = len(transcript.response_ids)
    sample.loss_mask = transcript.mask
    sample.rollout_log_probs = transcript.logprobs


def keep_scored(args: Any, samples: list[Any], **kwargs: Any) -> Any:
    """slime's dynamic sampling filter: drops groups in which a sample has no reward."""
    from slime.rollout.filter_hub.base_types import DynamicFilterOutput

    faults = [sample.metadata["forage_fault"] for sample in samples if "forage_fault" in sample.metadata]
    return DynamicFilterOutput(keep=not faults, reason=f"fault_{faults[0]}" if faults else None)
