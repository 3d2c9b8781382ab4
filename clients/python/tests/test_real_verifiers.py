"""verifiers' own loop with a real policy: `forage serve policy` samples, verifiers asks it by OpenAI's package."""

import asyncio
import math

import pytest

vf = pytest.importorskip("verifiers", reason="verifiers is not installed")
if not hasattr(vf, "MultiTurnEnv"):
    pytest.skip("verifiers is newer than 0.2", allow_module_level=True)

from conftest import serving  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402
from real import CONFIG, adapter, chat_checkpoint  # noqa: E402
from verifiers.clients import OpenAIChatCompletionsClient  # noqa: E402

QUESTIONS, GROUP = 16, 4


def test_a_real_policy_is_evaluated(world, tmp_path):
    checkpoint = str(chat_checkpoint(tmp_path))
    with (
        serving("--config", str(CONFIG), "--limit", "64") as url,
        serving(checkpoint, "--name", "policy", "--cache-mib", "64", kind="policy") as policy,
    ):
        environment = adapter("verifiers").load_environment(url, limit=QUESTIONS)

        async def evaluated():
            client = OpenAIChatCompletionsClient(AsyncOpenAI(base_url=policy + "/v1", api_key="none"))
            return await environment.evaluate(client, "policy", num_examples=QUESTIONS, rollouts_per_example=GROUP)

        outputs = asyncio.run(evaluated())["outputs"]
    assert len(outputs) == QUESTIONS * GROUP
    rewards = [output["reward"] for output in outputs]
    assert all(output.get("error") is None for output in outputs)
    assert not any(map(math.isnan, rewards))
    # It plays the protocol: some episodes search, some answers are right and some are not.
    assert 0 < sum(rewards) < len(rewards)
    replies = [
        message["content"] for output in outputs for message in output["completion"] if message["role"] == "user"
    ]
    assert replies
    assert all("<information>" in reply for reply in replies)
