"""TRL's `GRPOTrainer`, in either of the two ways it plays episodes.

With a chat model that calls tools, the environment's tools are the model's, and TRL samples:

```
client = Client("http://localhost:8000", patience=600)
GRPOTrainer(model=..., train_dataset=tool_rows(client), environment_factory=environment_factory(client))
```

With any model, in the environment's own text protocol, ids in and ids out:

```
GRPOTrainer(model=..., train_dataset=rows(client), rollout_func=Rollout(client), reward_funcs=[environment_reward])
```

Either way a fault leaves a completion without a reward (None): TRL keeps it out of its group's baseline and gives it the
advantage 0. Its tokens do not count in the loss with `Rollout`.
"""

import inspect
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

from .client import Client, Session
from .errors import Capacity, Conflict, Fault, ForageError, Invalid
from .run import missing
from .tokens import Codec, Episode, Generation
from .wire import Finish, Tool

__all__ = ["Rollout", "ToolEnvironment", "environment_factory", "environment_reward", "rows", "tool_rows"]

_CALLS = 64


def rows(client: Client, limit: int | None = None) -> Any:
    """A dataset for `Rollout`: the prompt is the question's id, in whose place the policy reads the environment's prompt."""
    return _dataset(lambda: [{"prompt": task.task_id} for task in client.tasks(limit)])


def tool_rows(client: Client, limit: int | None = None, *, system: str | None = None) -> Any:
    """A dataset for `environment_factory`: the question as the user's message, and its `task_id`."""
    opening = [] if system is None else [{"role": "system", "content": system}]
    return _dataset(
        lambda: [
            {"prompt": [*opening, {"role": "user", "content": task.question}], "task_id": task.task_id}
            for task in client.tasks(limit)
        ]
    )


def _dataset(made: Callable[[], list[dict[str, Any]]]) -> Any:
    try:
        from datasets import Dataset
    except ModuleNotFoundError as error:
        raise missing("datasets", "trl") from error
    return Dataset.from_list(made())


class ToolEnvironment:
    """One rollout's environment, as TRL's `environment_factory` makes them.

    TRL takes every public method of its class for a tool; `environment_factory` makes a subclass with one for each tool of the
    server.
    """

    def __init__(self, client: Client) -> None:
        """Opens nothing yet."""
        self._client = client
        self._session: Session | None = None
        self._fault: Fault | None = None

    def reset(self, **row: Any) -> None:
        """Begins the episode of a row, by its `task_id` or `task_index`. One that a fault kept from beginning has no reward.

        Raises:
            ValueError: the row names no task; the rollouts of a group would have different questions.
            Refused: see `Client.reset`.
        """
        task = {name: row[name] for name in ("task_id", "task_index", "seed", "member") if row.get(name) is not None}
        if not {"task_id", "task_index"} & task.keys():
            raise ValueError("a row has neither `task_id` nor `task_index`; see forage.trl.tool_rows")
        self._leave()
        self._session = self._fault = None
        try:
            self._session = self._client.reset(**task)
        except Fault as fault:
            self._fault = fault

    def get_reward(self) -> float | None:
        """The episode's reward; None after a fault. An episode without an answer ends here, as truncated."""
        if self._session is None or self._fault is not None:
            return None
        if not self._session.observation.done:
            try:
                self._session.step("", "context")
            except Fault as fault:
                self._fault = fault
                return None
        return self._session.reward

    def _use(self, tool: Tool, argument: str) -> str:
        if self._session is None or self._fault is not None:
            raise RuntimeError("the episode has ended by a fault")
        try:
            step = self._session.call(tool.name, **{tool.parameter: argument})
        except Fault as fault:
            self._fault = fault
            raise
        except Conflict as error:
            raise ValueError("the episode is over; write nothing more") from error
        except Invalid as error:
            # The model's to mend.
            raise ValueError(str(error)) from error
        return step.observation.text.strip() or "Noted."

    def _leave(self) -> None:
        if self._session is not None:
            # After a fault it is gone already, or soon will be.
            with suppress(Fault):
                self._session.close()


def environment_factory(client: Client) -> Callable[[], ToolEnvironment]:
    """What `GRPOTrainer(environment_factory=...)` takes; its tools are those of the server."""

    def method(tool: Tool) -> Callable[..., str]:
        def use(self: ToolEnvironment, *args: str, **kwargs: str) -> str:
            return self._use(tool, signature.bind(self, *args, **kwargs).arguments[tool.parameter])

        names = ("self", tool.parameter)
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        parameters[1] = parameters[1].replace(annotation=str)
        signature = inspect.Signature(parameters, return_annotation=str)
        use.__signature__ = signature  # type: ignore[attr-defined]
        use.__annotations__ = {tool.parameter: str, "return": str}
        use.__name__ = use.__qualname__ = tool.name
        # Transformers reads a tool's schema from here.
        use.__doc__ = (
            f"{tool.description}\n\nArgs:\n    {tool.parameter}: The {tool.parameter}.\n\nReturns:\n    The findings."
        )
        return use

    tools = client.info().tools
    kind = type("ForageEnvironment", (ToolEnvironment,), {tool.name: method(tool) for tool in tools})
    return lambda: kind(client)


class Rollout:
    """What `GRPOTrainer(rollout_func=...)` takes: plays a batch of episodes, one request to the model for each turn of all.

    Attributes:
        chat: whether the opening prompt is the user's message in the tokenizer's chat template.
    """

    def __init__(self, client: Client, *, chat: bool = False, generate: "Generate | None" = None) -> None:
        """Connects to nothing yet.

        Args:
            client: of the server.
            chat: whether the opening prompt is the user's message in the tokenizer's chat template.
            generate: samples a turn of each episode; by default with the trainer's own model (`sample`). An engine of its own
                (vLLM) is put in here.
        """
        self._client = client
        self.chat = chat
        self._info = client.info()
        self._generate = sample if generate is None else generate

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        """Plays an episode for each prompt, the id of its question; where the server has fewer places, one part after the other.

        Returns:
            `prompt_ids`, `completion_ids`, `logprobs` and `env_mask` (1 where the policy sampled), a list for each prompt, and
            `episode_reward`, a number or None for each. TRL takes the rollouts of a group to stand side by side, as the
            prompts do.
        """
        codec = Codec(trainer.processing_class, chat=self.chat)
        most = trainer.args.max_completion_length
        episodes: dict[int, Episode] = {}
        faults: dict[int, Fault] = {}

        def begin(place: int, patient: bool) -> None:
            task = {"task_id": prompts[place], "member": place, "patient": patient}
            try:
                episodes[place] = Episode(self._client, codec, self._info, max_response=most, **task)
            except Capacity as full:
                if patient:
                    faults[place] = full
            except Fault as fault:
                faults[place] = fault

        def waiting() -> list[int]:
            return [place for place in range(len(prompts)) if place not in episodes and place not in faults]

        begins: list[Future[None]] = []
        with ThreadPoolExecutor(min(_CALLS, len(prompts))) as threads:
            try:
                while left := waiting():
                    begins = [threads.submit(begin, place, False) for place in left]
                    for one in begins:
                        one.result()
                    if waiting() == left:
                        # Only now is there nothing to play, by which places become free, so that one may wait.
                        begin(left[0], True)
                        if isinstance(full := faults.get(left[0]), Capacity):
                            faults |= dict.fromkeys(left, full)
                    self._play(trainer, episodes, faults, threads)
            finally:
                # A fault, or an exception of the engine's, leaves episodes open, and with them their places.
                wait([one for one in begins if not one.cancel()])
                list(threads.map(_leave, [episode for episode in episodes.values() if not episode.done]))
        return _columns(len(prompts), episodes, faults, codec.eos or 0)

    def _play(
        self, trainer: Any, episodes: dict[int, Episode], faults: dict[int, Fault], threads: ThreadPoolExecutor
    ) -> None:
        """Plays to their ends those episodes that have begun."""

        def take(pair: tuple[int, Generation]) -> None:
            place, generation = pair
            try:
                episodes[place].take(generation)
            except Fault as fault:
                faults[place] = fault

        while playing := [place for place, one in sorted(episodes.items()) if place not in faults and not one.done]:
            generations = self._generate(trainer, [episodes[place] for place in playing], self._info.stop)
            list(threads.map(take, zip(playing, generations, strict=True)))


def _leave(episode: Episode) -> None:
    with suppress(ForageError):
        episode.close()


Generate = Callable[[Any, list[Episode], tuple[str, ...]], list[Generation]]
"""Samples a turn of each episode: the trainer, the episodes, and the strings that end a turn."""


def _columns(count: int, episodes: dict[int, Episode], faults: dict[int, Fault], filler: int) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        name: [] for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "episode_reward")
    }
    for place in range(count):
        # One token that counts for nothing where there is none: TRL does not take empty lists.
        row: tuple[Any, ...] = ([filler], [filler], [0.0], [0], None)
        episode = episodes.get(place)
        if episode is not None and episode.transcript.response_ids:
            done, faulty = episode.transcript, place in faults
            mask = [0] * len(done.mask) if faulty else done.mask
            row = (done.prompt_ids, done.response_ids, done.logprobs, mask, None if faulty else episode.reward)
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns


def environment_reward(episode_reward: list[float | None], **columns: Any) -> list[float | None]:
    """The reward function that goes with `Rollout`: what the episodes brought, None where a fault ended them."""
    return episode_reward


def sample(trainer: Any, episodes: list[Episode], stop: tuple[str, ...]) -> list[Generation]:
    """Samples a turn of each episode with the trainer's own model, at the trainer's temperature, top-p, top-k and min-p.

    The log-probabilities are those of the distribution that was sampled from.
    """
    import torch
    from trl.models import unwrap_model_for_generation

    tokenizer, args, device = trainer.processing_class, trainer.args, trainer.accelerator.device
    contexts = [episode.context for episode in episodes]
    width = max(map(len, contexts))
    pad = tokenizer.pad_token_id
    ids = torch.tensor([[pad] * (width - len(context)) + context for context in contexts], device=device)
    seen = torch.tensor([[0] * (width - len(context)) + [1] * len(context) for context in contexts], device=device)
    settings: dict[str, Any] = {
        "do_sample": True,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "top_k": args.top_k,
        "min_p": args.min_p,
        "pad_token_id": pad,
        "max_new_tokens": max(episode.room for episode in episodes),
        "stop_strings": list(stop),
        "return_dict_in_generate": True,
        "output_scores": True,
    }
    with (
        unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model,
        torch.no_grad(),
    ):
        was_training = model.training
        model.eval()
        done = model.generate(input_ids=ids, attention_mask=seen, tokenizer=tokenizer, **settings)
        model.train(was_training)
        ends = _ends(model.generation_config.eos_token_id, tokenizer.eos_token_id)
    new = done.sequences[:, width:]
    scores = torch.stack(done.scores, dim=1).float().log_softmax(-1)
    logprobs = scores.gather(-1, new.unsqueeze(-1)).squeeze(-1)
    return [
        _cut(episode, tokens, values, tokenizer, stop, ends)
        for episode, tokens, values in zip(episodes, new.tolist(), logprobs.tolist(), strict=True)
    ]


def _ends(listed: int | list[int] | None, own: int | None) -> set[int]:
    """Every token at which the model stops: those that it lists, and the tokenizer's own."""
    all_ends = [*listed, own] if isinstance(listed, list) else [listed, own]
    return {token for token in all_ends if token is not None}


def _cut(
    episode: Episode, ids: list[int], logprobs: list[float], tokenizer: Any, stop: tuple[str, ...], ends: set[int]
) -> Generation:
    """What belongs to this episode of a row that is as long as the batch's longest."""
    finish: Finish = "length"
    length = min(len(ids), episode.room)
    for place in range(length):
        if ids[place] in ends:
            length, finish = place + 1, "eos"
            break
        # A stop string is a few tokens long; it ends with the token that completes it.
        tail = tokenizer.decode(ids[max(0, place - 31) : place + 1], skip_special_tokens=False)
        if any(string in tail for string in stop):
            length, finish = place + 1, "stop"
            break
    return Generation(ids[:length], logprobs[:length], finish)
