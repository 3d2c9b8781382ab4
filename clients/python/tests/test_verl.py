"""Against stand-ins for the parts of verl that are called, where verl is not installed; `test_real_verl.py` has verl itself."""

import asyncio
import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest
from policy import Bytes, agrees, script, written

from forage import Infra
from forage.client import Session


class AgentLoopBase:
    """As verl makes one: its own arguments, then those of the YAML file."""

    def __init__(self, trainer_config, server_manager, tokenizer, processor, **kwargs):
        assert not kwargs
        self.config, self.server_manager, self.tokenizer = trainer_config.config, server_manager, tokenizer


class Engine:
    """verl's server manager: answers with the script, and keeps what it was asked."""

    def __init__(self, gold: str, **changes) -> None:
        self.asked, self._gold, self._changes = [], gold, changes

    async def generate(self, request_id, *, prompt_ids, sampling_params, image_data=None):
        self.asked.append((request_id, prompt_ids, sampling_params))
        generation = written(script(self._gold, int(prompt_ids[-3:] == list(b">\n\n"))))
        output = {"token_ids": list(generation.ids), "log_probs": list(generation.logprobs), "stop_reason": "completed"}
        return SimpleNamespace(**output | self._changes)


@pytest.fixture
def verl(monkeypatch):
    members = {
        "AgentLoopBase": AgentLoopBase,
        "AgentLoopOutput": SimpleNamespace,
        "AgentLoopMetrics": SimpleNamespace,
    }
    parts = ["verl", "verl.experimental", "verl.experimental.agent_loop", "verl.experimental.agent_loop.agent_loop"]
    for name in parts:
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
    module.__dict__.update(members)
    monkeypatch.delitem(sys.modules, "forage.verl", raising=False)
    yield importlib.import_module("forage.verl").ForageAgentLoop
    sys.modules.pop("forage.verl", None)


def run(kind, engine, url, backend="vllm", prompt_length=2000, **row):
    async def one():
        rollout = SimpleNamespace(response_length=2000, prompt_length=prompt_length, name=backend)
        config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout))
        loop = kind(
            trainer_config=SimpleNamespace(config=config),
            server_manager=engine,
            tokenizer=Bytes(),
            processor=None,
            base_url=url,
        )
        return await loop.run({"temperature": 1.0, "logprobs": True}, raw_prompt=[], **row)

    return asyncio.run(one())


def test_an_output_is_filled(verl, url, world):
    engine = Engine(world.golds[0])
    output = run(verl, engine, url, extra_info={"task_index": 0, "index": 3})
    assert output.reward_score == 1.0
    assert output.num_turns == 4
    assert output.extra_fields["forage_score"]["em"] == 1.0
    turns = [script(world.golds[0], turn) for turn in range(2)]
    agrees(output.response_ids, output.response_mask, output.response_logprobs, turns)
    (first, second) = engine.asked
    assert first[0] == second[0]
    assert second[1][: len(first[1])] == first[1]
    assert second[2]["stop"]
    assert second[2]["include_stop_str_in_output"]
    assert second[2]["max_tokens"] > 0
    assert second[2]["temperature"] == 1.0
    engine = Engine(world.golds[0])
    run(verl, engine, url, backend="sglang", task_index=0)
    assert engine.asked[0][2]["no_stop_trim"]
    assert "include_stop_str_in_output" not in engine.asked[0][2]


def test_a_turn_ends_at_any_special_token(verl, url, monkeypatch):
    taken, step = [], Session.step

    def seen(session, text, finish=None):
        taken.append((text, finish))
        return step(session, text, finish)

    monkeypatch.setattr(Session, "step", seen)
    ids = [*b"I wonder", 3]
    output = run(verl, Engine("", token_ids=ids, log_probs=[-0.5] * len(ids)), url, task_index=0)
    assert taken[0] == ("I wonder", "eos")
    assert output.response_ids[: len(ids)] == ids


def test_a_fault_is_raised(verl, dead_url):
    engine = Engine("")
    with pytest.raises(Infra):
        run(verl, engine, dead_url, task_index=0)
    assert len(engine.asked) == 3


def test_what_is_missing_is_named(verl, url, world):
    with pytest.raises(ValueError, match="task_index"):
        run(verl, Engine(""), url)
    with pytest.raises(RuntimeError, match="calculate_log_probs"):
        run(verl, Engine("", log_probs=None), url, task_index=0)
    for words in ("aborted", "abort"):
        with pytest.raises(RuntimeError, match="aborted"):
            run(verl, Engine("", stop_reason=words), url, task_index=0)
    with pytest.raises(ValueError, match="max_prompt_length"):
        run(verl, Engine(""), url, prompt_length=10, task_index=0)
