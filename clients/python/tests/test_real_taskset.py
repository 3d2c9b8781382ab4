"""verifiers 0.4's own loop with a real policy: `forage serve policy` samples, verifiers asks it by OpenAI's package."""

import asyncio

import pytest

vf = pytest.importorskip("verifiers.v1", reason="verifiers 0.4 is not installed")
if not hasattr(vf, "Interaction"):
    pytest.skip("verifiers is older than 0.4", allow_module_level=True)

from conftest import serving  # noqa: E402
from real import CONFIG, chat_checkpoint  # noqa: E402

QUESTIONS, GROUP = 16, 4


def test_a_real_policy_is_evaluated(world, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_KEY", "none")
    checkpoint = str(chat_checkpoint(tmp_path))
    with (
        serving("--config", str(CONFIG), "--limit", "64") as url,
        serving(checkpoint, "--name", "policy", "--cache-mib", "64", kind="policy") as policy,
    ):
        config = vf.resolve_env_config({"taskset": {"id": "forage-verifiers", "base_url": url}})
        environment = vf.load_environment(config)
        client = vf.EvalClientConfig(base_url=policy + "/v1", api_key_var="NO_KEY")
        asked = vf.ModelContext(model="policy", client=client, sampling=vf.SamplingConfig())

        async def evaluated():
            async with environment.serving():
                slots = [
                    slot for task in environment.taskset.take(QUESTIONS) for slot in environment.slots(task, GROUP)
                ]
                return await asyncio.gather(*(environment.run_slot(slot, asked) for slot in slots))

        episodes = asyncio.run(evaluated())
    assert len(episodes) == QUESTIONS * GROUP
    assert all(episode.ok for episode in episodes), [episode.errors for episode in episodes if not episode.ok]
    traces = [trace for episode in episodes for trace in episode.traces]
    assert all(trace.num_branches == 1 for trace in traces)
    # It plays the protocol: some episodes search, some answers are right and some are not.
    assert 0 < sum(trace.reward for trace in traces) < len(traces)
    replies = [message.content for trace in traces for message in trace.messages[1:] if message.role == "user"]
    assert replies
    assert all("<information>" in reply for reply in replies)
