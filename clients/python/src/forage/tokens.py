"""Episodes in tokens: what a trainer trains on.

Ids go in and ids come out. What the policy sampled stays as it was sampled, what the environment wrote is encoded once and put
behind it, and nothing is ever encoded again. `mask` is 1 for the tokens the policy sampled and 0 for the others, whose
log-probabilities are 0.0.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from .client import Client, Session
from .errors import Fault, ForageError
from .wire import Finish, Info, Observation

__all__ = ["Codec", "Episode", "Generation", "Threads", "Tokenizer", "Transcript", "play"]

_T = TypeVar("_T")


class Tokenizer(Protocol):
    """What is used of a tokenizer of `transformers`."""

    eos_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Text to ids."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Ids to text."""
        ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, add_generation_prompt: bool, tokenize: bool
    ) -> Any:
        """A conversation as the model reads it."""
        ...


class Codec:
    """Text to ids and back."""

    def __init__(self, tokenizer: Tokenizer, *, chat: bool = False) -> None:
        """With `chat`, the opening prompt is the user's message in the tokenizer's chat template, else it is read as it is."""
        self._tokenizer = tokenizer
        self._chat = chat
        self.eos: int | None = tokenizer.eos_token_id

    def prompt(self, text: str) -> list[int]:
        """Ids of an opening prompt."""
        if self._chat:
            turns = [{"role": "user", "content": text}]
            text = self._tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        return self.encode(text)

    def encode(self, text: str) -> list[int]:
        """Ids of text in the middle of an episode."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int], *, ended: bool = False) -> str:
        """Text of what the policy sampled, without the end-of-sequence token, or whichever token `ended` it."""
        kept = ids[:-1] if ids and (ended or ids[-1] == self.eos) else ids
        return self._tokenizer.decode(kept, skip_special_tokens=False)


@dataclass(frozen=True)
class Generation:
    """What an engine sampled for a turn.

    Attributes:
        ids: the sampled ids, the stop string's and the end-of-sequence token included, shape [new].
        logprobs: their log-probabilities under the policy that sampled them, shape [new].
        finish: why it stopped, `length` for its limit of new tokens.
    """

    ids: Sequence[int]
    logprobs: Sequence[float]
    finish: Finish


@dataclass
class Transcript:
    """An episode's tokens.

    Attributes:
        prompt_ids: of the opening prompt, shape [prompt].
        response_ids: of everything behind it, shape [response].
        mask: 1 where the policy sampled, shape [response].
        logprobs: of what the policy sampled, 0.0 elsewhere, shape [response].
    """

    prompt_ids: list[int]
    response_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        """Tokens, prompt included."""
        return len(self.prompt_ids) + len(self.response_ids)

    def policy(self, generation: Generation) -> None:
        """Appends what the policy sampled."""
        if len(generation.ids) != len(generation.logprobs):
            raise ValueError(f"{len(generation.ids)} ids have {len(generation.logprobs)} log-probabilities")
        self.response_ids += generation.ids
        self.mask += [1] * len(generation.ids)
        self.logprobs += generation.logprobs

    def environment(self, ids: Sequence[int]) -> None:
        """Appends what the policy did not write."""
        self.response_ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)


class Episode:
    """An episode that a policy plays in tokens: sample up to `room` tokens behind `context`, `take` them, until `done`.

    Attributes:
        transcript: the tokens.
        observation: the last one.
        reward: of the whole episode; None before its end, and always None after a fault.
    """

    def __init__(
        self, client: Client, codec: Codec, info: Info, *, max_response: int | None = None, **task: Any
    ) -> None:
        """Begins an episode.

        Args:
            client: of the server.
            codec: of the policy's tokenizer.
            info: of the server.
            max_response: most tokens behind the opening prompt, where that ends it before the server's limit does.
            task: what `Client.reset` takes.

        Raises:
            ForageError: see `Client.reset`.
        """
        self._codec = codec
        self._info = info
        self._session: Session = client.reset(**task)
        self.transcript = Transcript(codec.prompt(self.observation.text))
        self._most = info.max_episode_tokens
        if max_response is not None:
            self._most = min(self._most, len(self.transcript) + max_response)
        self.reward: float | None = None
        if self.room <= 0:
            self._end()

    @property
    def observation(self) -> Observation:
        """The last one."""
        return self._session.observation

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self.observation.done

    @property
    def context(self) -> list[int]:
        """What the policy reads, shape [prompt + response]."""
        return self.transcript.prompt_ids + self.transcript.response_ids

    @property
    def room(self) -> int:
        """Most tokens the next turn may have."""
        return min(self._info.max_turn_tokens, self._most - len(self.transcript))

    def take(self, generation: Generation) -> bool:
        """Takes a turn; says whether the episode is over.

        Raises:
            Fault: the episode is over and has no reward.
        """
        finish = generation.finish
        written = self._codec.decode(generation.ids, ended=finish == "eos")
        if finish == "length" and any(stop in written for stop in self._info.stop):
            finish = "stop"
        if finish == "length" and len(generation.ids) >= self.room < self._info.max_turn_tokens:
            finish = "context"
        self.transcript.policy(generation)
        text = (self.observation.forced_prefix or "") + written
        step = self._session.step(text, finish)
        if step.done:
            self.reward = self._session.reward
            return True
        ids = self._codec.encode(step.observation.text + (step.observation.forced_prefix or ""))
        if finish == "stop" and self._info.append_eos_after_stop and self._codec.eos is not None:
            ids = [self._codec.eos, *ids]
        if len(self.transcript) + len(ids) >= self._most:
            self._end()
        else:
            self.transcript.environment(ids)
        return self.done

    def _end(self) -> None:
        """No token is left for another turn."""
        self._session.step("", "context")
        self.reward = self._session.reward

    def close(self) -> None:
        """Leaves it, wherever it is."""
        self._session.close()


class Threads:
    """Threads for the calls of many episodes.

    What begins an episode may wait for a place on the server, which others give back by their calls: in line behind those that wait,
    these would never come to their turn. So a quarter of the threads begins episodes and does nothing else.
    """

    def __init__(self, most: int) -> None:
        """Of `most` threads, each started when it is needed."""
        begins = max(most // 4, 1)
        self._begins = ThreadPoolExecutor(begins, thread_name_prefix="forage-begin")
        self._calls = ThreadPoolExecutor(max(most - begins, 1), thread_name_prefix="forage")

    def begin(self, begin: Callable[[], _T]) -> Future[_T]:
        """Begins an episode or a session."""
        return self._begins.submit(begin)

    def call(self, call: Callable[[], _T]) -> asyncio.Future[_T]:
        """Makes another call."""
        return asyncio.get_running_loop().run_in_executor(self._calls, call)

    async def leave(self, begun: Future[Any]) -> None:
        """Closes an episode or a session; one that is being begun still closes itself, once it has begun."""
        if begun.done():
            await asyncio.shield(self.call(partial(_leave, begun)))
        else:
            begun.add_done_callback(_leave)

    def close(self) -> None:
        """Waits for all calls."""
        self._begins.shutdown()
        self._calls.shutdown()


async def play(
    client: Client,
    codec: Codec,
    info: Info,
    generate: Callable[[Episode], Awaitable[Generation | None]],
    threads: Threads,
    *,
    attempts: int = 1,
    max_response: int | None = None,
    **task: Any,
) -> Episode:
    """Plays an episode to its end among others.

    Args:
        client: of the server; its calls run on `threads`.
        codec: of the policy's tokenizer.
        info: of the server.
        generate: samples a turn; None where the engine gave up, which leaves the episode without a reward.
        threads: for the calls of all episodes that are played at a time.
        attempts: how often the episode is begun anew after a fault.
        max_response: as `Episode` takes it.
        task: what `Client.reset` takes.

    Whatever ends it early, the episode's place is given back: a server that lacked room for a turn keeps the episode open, and
    with it what the next attempt needs.

    Raises:
        Fault: of the last attempt.
        ValueError: the opening prompt leaves no token for a turn.
    """
    while True:
        attempts -= 1
        begun = threads.begin(partial(Episode, client, codec, info, max_response=max_response, **task))
        try:
            episode = await asyncio.wrap_future(begun)
            if episode.done:
                raise ValueError(
                    f"the environment's prompt has {len(episode.transcript)} tokens and leaves none for a turn; raise its "
                    "max_episode_tokens, or the trainer's limit of a response"
                )
            while not episode.done:
                generation = await generate(episode)
                if generation is None:
                    await threads.call(episode.close)
                    break
                await threads.call(partial(episode.take, generation))
        except (Exception, asyncio.CancelledError) as error:
            await threads.leave(begun)
            if not isinstance(error, Fault) or attempts <= 0:
                raise
        else:
            return episode


def _leave(begun: Future[Any]) -> None:
    with suppress(CancelledError, ForageError):
        if begun.exception() is None:
            begun.result().close()
