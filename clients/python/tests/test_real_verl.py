"""verl itself, on the processor: its data set, agent loop workers and load balancer under Ray, and its padding of what they give.

Where verl has vLLM or SGLang stands a Ray actor that asks `forage serve policy` in tokens: real sampling from real weights. The
log-probabilities that reach verl's batch are compared with what transformers computes from that batch and the same weights.
"""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree

import pytest

verl = pytest.importorskip("verl", reason="verl is not installed")

import numpy  # noqa: E402
import ray  # noqa: E402
import torch  # noqa: E402
from conftest import serving  # noqa: E402
from datasets import Dataset  # noqa: E402
from hydra import compose, initialize_config_module  # noqa: E402
from real import CHECKPOINT, CONFIG, adapter, forage  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402
from verl.experimental.agent_loop.agent_loop import AgentLoopManager  # noqa: E402
from verl.protocol import DataProto  # noqa: E402
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage  # noqa: E402
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn  # noqa: E402
from verl.workers.rollout.llm_server import LLMServerClient  # noqa: E402
from verl.workers.rollout.replica import TokenOutput  # noqa: E402
from verl.workers.rollout.router import get_router_handle  # noqa: E402

QUESTIONS, GROUP = 8, 4
PROMPT, RESPONSE = 100, 384


@ray.remote
class Engine:
    """Takes and gives what verl's own servers of vLLM do."""

    def __init__(self, url: str) -> None:
        self._url = url

    def generate(self, request_id, prompt_ids, sampling_params, image_data=None, video_data=None) -> TokenOutput:
        body = {"prompt": prompt_ids, "return_token_ids": True} | sampling_params
        body["logprobs"] = 1 if body["logprobs"] else None
        request = urllib.request.Request(self._url + "/v1/completions", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            (choice,) = json.load(answer)["choices"]
        logprobs = choice["logprobs"]["token_logprobs"]
        return TokenOutput(token_ids=choice["token_ids"], log_probs=logprobs, stop_reason="completed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ["RAY_AUTH_MODE"] = "disabled"
    # Workers find the adapter and this module where pytest does.
    runtime = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    ray.init(
        num_cpus=4, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1", runtime_env=runtime
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def policy(cluster, world) -> Iterator[object]:
    with serving("builtin:quickstart", "--cache-mib", "64", kind="policy") as url:
        yield Engine.remote(url)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """The built-in policy with the mark that verl asks of every tokenizer of a Qwen."""
    folder = tmp_path_factory.mktemp("checkpoint") / "policy"
    copytree(CHECKPOINT, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def play(policy, checkpoint, tmp_path):
    """Plays rows of a data set with verl, as its trainer's rollout does."""

    def played(url: str, tasks: list[dict], *changes: str, n: int = 1) -> DataProto:
        loops = tmp_path / "loops.yaml"
        loops.write_text(f"- name: forage\n  _target_: {adapter('verl').__name__}.ForageAgentLoop\n  base_url: {url}\n")
        data = tmp_path / "rows.parquet"
        rows = [
            {
                "data_source": "forage",
                "prompt": [{"role": "user", "content": task["question"]}],
                "agent_name": "forage",
                "extra_info": {"index": place, "task_id": task["task_id"]},
            }
            for place, task in enumerate(tasks)
        ]
        Dataset.from_list(rows).to_parquet(str(data))
        settings = [
            f"actor_rollout_ref.model.path={checkpoint}",
            "actor_rollout_ref.rollout.name=vllm",
            "actor_rollout_ref.rollout.agent.num_workers=2",
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={loops}",
            f"data.max_prompt_length={PROMPT}",
            f"data.max_response_length={RESPONSE}",
            *changes,
        ]
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides=settings)
        dataset = RLHFDataset(str(data), AutoTokenizer.from_pretrained(checkpoint), config.data)
        batch = DataProto.from_single_dict(collate_fn([dataset[place] for place in range(len(dataset))]))
        batch = batch.repeat(n, interleave=True)
        client = LLMServerClient(config, get_router_handle({"policy": policy}))
        return AgentLoopManager.create(config, client).generate_sequences(batch)

    return played


def tasks(url: str, count: int) -> list[dict]:
    return [vars(task) for task in forage.Client(url).tasks(count)]


@pytest.fixture(scope="module")
def quickstart(world) -> Iterator[str]:
    with serving("--config", str(CONFIG), "--limit", "64") as address:
        yield address


def test_workers_fill_a_batch(quickstart, play):
    output = play(quickstart, tasks(quickstart, QUESTIONS), n=GROUP)
    batch, count = output.batch, QUESTIONS * GROUP
    assert batch["responses"].shape == (count, RESPONSE)
    assert batch["prompts"].shape == (count, PROMPT)
    rewards = batch["rm_scores"].sum(-1)
    assert set(rewards.tolist()) <= {0.0, 1.0}
    # The policy finds some answers and not all.
    assert 0 < rewards.sum() < count
    scores = [extra["em"] for extra in output.non_tensor_batch["forage_score"]]
    assert scores == rewards.tolist()
    # The last token of a response carries its reward.
    lengths = batch["attention_mask"][:, PROMPT:].sum(-1)
    assert torch.equal(batch["rm_scores"].gather(1, lengths[:, None] - 1)[:, 0], rewards)
    # Episodes with a search have the environment's tokens in the middle, outside the mask.
    mask = batch["response_mask"].bool()
    searched = torch.tensor([turns > 2 for turns in output.non_tensor_batch["__num_turns__"].tolist()])
    assert searched.any()
    assert torch.equal(mask.sum(-1) < lengths, searched)
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    for ids, own, length in zip(batch["responses"][searched], mask[searched], lengths[searched], strict=True):
        assert "<information>" in tokenizer.decode(ids[:length][~own[:length]])
        assert "<information>" not in tokenizer.decode(ids[:length][own[:length]])

    model = AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32)
    with torch.no_grad():
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "position_ids")}
        logits = model(**inputs).logits[:, PROMPT - 1 : -1]
    computed = logits.log_softmax(-1).gather(-1, batch["responses"][..., None])[..., 0]
    assert (computed - batch["rollout_log_probs"])[mask].abs().max() < 1e-3
    assert (batch["rollout_log_probs"][~mask] == 0).all()

    groups = numpy.arange(count) // GROUP
    advantages, _ = compute_grpo_outcome_advantage(batch["rm_scores"], batch["response_mask"], groups)
    mixed = rewards.view(-1, GROUP).std(-1) > 0
    assert mixed.any()
    moved = advantages.abs().sum(-1).view(-1, GROUP) > 0
    assert torch.equal(moved.all(-1), mixed)


def test_a_fault_ends_the_batch(dead_url, play):
    # One of so many episodes searches.
    with pytest.raises(ray.exceptions.RayTaskError, match="the retriever failed"):
        play(dead_url, tasks(dead_url, 4), n=8)


def test_a_prompt_that_does_not_fit_is_named(quickstart, play):
    with pytest.raises(ray.exceptions.RayTaskError, match="max_prompt_length"):
        play(quickstart, tasks(quickstart, 2), "data.max_prompt_length=5")
