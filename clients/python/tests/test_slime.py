"""Against stand-ins for the parts of slime that are called; slime itself needs GPUs."""

import asyncio
import math
import sys
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace

import pytest
from policy import Bytes, agrees, script, written

from forage import slime


@dataclass
class Sample:
    """The fields of slime's own that are read or set."""

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    index: int | None = None
    prompt: str = ""
    tokens: list = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    reward: float | None = None
    loss_mask: list | None = None
    rollout_log_probs: list | None = None
    remove_sample: bool = False
    status: Status = Status.PENDING
    metadata: dict = field(default_factory=dict)


ARGS = SimpleNamespace(sglang_router_ip="10.0.0.1", sglang_router_port=3000, apply_chat_template=False)


@pytest.fixture
def engine(monkeypatch, world):
    """SGLang's router: answers with the script, and keeps what it was asked."""
    asked = []

    async def post(address, body):
        asked.append((address, body))
        turn = sum(body["input_ids"][-len(mark) :] == list(mark.encode()) for mark in ("</information>\n\n",))
        gold = world.golds[0]
        generation = written(engine_script(gold, turn))
        pairs = [[value, token, None] for value, token in zip(generation.logprobs, generation.ids, strict=True)]
        return {"text": "", "meta_info": {"finish_reason": {"type": reason[0]}, "output_token_logprobs": pairs}}

    reason = ["stop"]
    engine_script = script
    modules = {
        "slime": {},
        "slime.rollout": {},
        "slime.rollout.sglang_rollout": {"GenerateState": lambda args: SimpleNamespace(tokenizer=Bytes())},
        "slime.rollout.filter_hub": {},
        "slime.rollout.filter_hub.base_types": {"DynamicFilterOutput": SimpleNamespace},
        "slime.utils": {},
        "slime.utils.http_utils": {"post": post},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)
    slime._server.cache_clear()
    yield SimpleNamespace(asked=asked, reason=reason)
    slime._server.cache_clear()


def played(monkeypatch, url, **metadata):
    monkeypatch.setenv("FORAGE_URL", url)
    sample = Sample(index=5, metadata=metadata)
    return asyncio.run(slime.generate(ARGS, sample, {"temperature": 1.0, "max_new_tokens": 100}))


def test_a_sample_is_filled(monkeypatch, url, world, engine):
    sample = played(monkeypatch, url, task_index=0)
    assert (sample.reward, sample.status) == (1.0, Sample.Status.COMPLETED)
    assert sample.tokens[-sample.response_length :] == list(sample.response.encode())
    assert world.questions[0] in sample.prompt
    assert bytes(sample.tokens).decode() == sample.prompt + sample.response
    response = sample.tokens[-sample.response_length :]
    agrees(response, sample.loss_mask, sample.rollout_log_probs, [script(world.golds[0], turn) for turn in range(2)])
    address, body = engine.asked[1]
    assert address == "http://10.0.0.1:3000/generate"
    assert body["return_logprob"]
    assert body["sampling_params"]["no_stop_trim"]
    assert body["sampling_params"]["max_new_tokens"] <= 100
    assert "</search>" in body["sampling_params"]["stop"]
    # Ids in: the second request begins with all of the first.
    first = engine.asked[0][1]["input_ids"]
    assert body["input_ids"][: len(first)] == first
    assert slime.keep_scored(ARGS, [sample]).keep


def test_a_fault_drops_its_group(monkeypatch, dead_url, engine):
    sample = played(monkeypatch, dead_url, task_index=0)
    assert (sample.status, sample.remove_sample) == (Sample.Status.FAILED, True)
    assert math.isnan(sample.reward)
    assert sample.loss_mask == [0]
    dropped = slime.keep_scored(ARGS, [Sample(reward=1.0), sample])
    assert (dropped.keep, dropped.reason) == (False, "fault_retriever")
    assert len(engine.asked) == slime.ATTEMPTS


def test_an_aborted_turn_aborts_the_sample(monkeypatch, url, engine):
    engine.reason[0] = "abort"
    sample = played(monkeypatch, url, task_index=0)
    assert (sample.status, sample.reward) == (Sample.Status.ABORTED, None)


def test_what_is_missing_is_named(monkeypatch, url, engine):
    with pytest.raises(RuntimeError, match="task_index"):
        played(monkeypatch, url)
    slime._server.cache_clear()
    monkeypatch.delenv("FORAGE_URL")
    with pytest.raises(RuntimeError, match="FORAGE_URL"):
        asyncio.run(slime.generate(ARGS, Sample(), {}))
