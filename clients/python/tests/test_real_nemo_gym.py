"""NeMo-Gym itself: its agent, its model servers and its rollout collection, with `forage serve env` as the resources server.

The agent's tools are called by a scripted model server of NeMo-Gym's kind; a real policy answers through NeMo-Gym's own vLLM
model server. Theirs run in this process, each on a port of its own, in one event loop: their HTTP client belongs to one.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nemo_gym", reason="nemo-gym is not installed")

import nemo_gym.global_config
import nemo_gym.server_utils
import uvicorn
from aiohttp import ClientResponseError
from conftest import serving
from fastapi import Body
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel
from nemo_gym.config_types import BaseServerConfig, ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.reward_profile import compute_aggregate_metrics
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import (
    GlobalAIOHTTPAsyncClientConfig,
    ServerClient,
    is_global_aiohttp_client_setup,
    set_global_aiohttp_client,
)
from omegaconf import OmegaConf
from real import CONFIG, chat_checkpoint, forage, sampled
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig

Script = Callable[[str, int], list[dict]]


def call(name: str, **arguments: str) -> dict:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": f"c-{name}"}


def message(text: str) -> dict:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}


class Scripted(SimpleResponsesAPIModel):
    """Writes `script(question, results so far)`."""

    config: BaseResponsesAPIModelConfig
    script: Script

    async def chat_completions(self, body: dict = Body()) -> None:  # noqa: B008
        raise NotImplementedError

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:  # noqa: B008
        items = [item if isinstance(item, dict) else item.model_dump() for item in body.input]
        results = sum(item.get("type") == "function_call_output" for item in items)
        fields = {"id": "r", "created_at": 0, "model": "m", "object": "response", "tools": []}
        output = self.script(items[0]["content"], results)
        return NeMoGymResponse(**fields, output=output, parallel_tool_calls=False, tool_choice="auto")


class Gym:
    """A head's view of a resources server, an agent and a model server."""

    def __init__(self, monkeypatch, resources: str) -> None:
        ports = {name: self._free() for name in ("agent", "model")}
        host, port = resources.removeprefix("http://").rsplit(":", 1)
        addresses = {name: {"host": "127.0.0.1", "port": number} for name, number in ports.items()}
        addresses["forage"] = {"host": host, "port": int(port)}
        kinds = {"agent": "responses_api_agents", "model": "responses_api_models", "forage": "resources_servers"}
        servers = {name: {kinds[name]: {"any": address}} for name, address in addresses.items()}
        config = OmegaConf.create(servers)
        monkeypatch.setattr(nemo_gym.global_config, "_GLOBAL_CONFIG_DICT", config)
        head = BaseServerConfig(host="127.0.0.1", port=1)
        self.client = ServerClient(head_server_config=head, global_config_dict=config)
        monkeypatch.setattr(RolloutCollectionHelper, "setup_server_client", self._setup)
        self.model = {"name": "model", "port": ports["model"], "host": "127.0.0.1", "entrypoint": "app.py"}
        fields = self.model | {"name": "agent", "port": ports["agent"]}
        model = ModelServerRef(type="responses_api_models", name="model")
        server = ResourcesServerRef(type="resources_servers", name="forage")
        agent = SimpleAgentConfig(resources_server=server, model_server=model, max_steps=6, **fields)
        self._agent = SimpleAgent(config=agent, server_client=self.client)

    @staticmethod
    def _free() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    def _setup(self, head: BaseServerConfig | None = None) -> ServerClient:
        """As the helper's own does, but that it asks no head server."""
        if not is_global_aiohttp_client_setup():
            set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())
        return self.client

    def scripted(self, script: Script) -> Scripted:
        return Scripted(config=BaseResponsesAPIModelConfig(**self.model), server_client=self.client, script=script)

    def collect(self, folder: Path, tasks: list, model: SimpleResponsesAPIModel, repeats: int) -> SimpleNamespace:
        """`ng_collect_rollouts`: rows in a file, rollouts and metrics in others."""
        rows = folder / "rows.jsonl"
        lines = [
            json.dumps(
                {
                    "responses_create_params": {"input": [{"role": "user", "content": task.question}]},
                    "verifier_metadata": {"task_id": task.task_id},
                    "agent_ref": {"type": "responses_api_agents", "name": "agent"},
                }
            )
            for task in tasks
        ]
        rows.write_text("\n".join(lines) + "\n")
        output = folder / "rollouts.jsonl"
        config = RolloutCollectionConfig(
            input_jsonl_fpath=str(rows), output_jsonl_fpath=str(output), num_repeats=repeats, num_samples_in_parallel=8
        )
        asyncio.run(asyncio.wait_for(self._collect(config, model), 60))
        (metrics,) = json.loads((folder / "rollouts_aggregate_metrics.json").read_text())
        return SimpleNamespace(rollouts=list(map(json.loads, output.read_text().splitlines())), metrics=metrics)

    async def _collect(self, config: RolloutCollectionConfig, model: SimpleResponsesAPIModel) -> None:
        self._setup()
        serving = []
        for server in (self._agent, model):
            # As `run_webserver` does, but for Ray and the process.
            app = server.setup_webserver()
            server.setup_exception_middleware(app)
            settings = uvicorn.Config(app, host="127.0.0.1", port=server.config.port, log_level="warning")
            running = uvicorn.Server(settings)
            serving.append((running, asyncio.create_task(running.serve())))
            while not running.started:
                await asyncio.sleep(0.01)
        try:
            await RolloutCollectionHelper().run_from_config(config)
        finally:
            await nemo_gym.server_utils._GLOBAL_AIOHTTP_CLIENT.close()
            nemo_gym.server_utils._GLOBAL_AIOHTTP_CLIENT = None
            for running, task in serving:
                running.should_exit = True
                await task


@pytest.fixture
def gym(monkeypatch) -> Callable[[str], Gym]:
    return partial(Gym, monkeypatch)


def test_rollouts_with_tools_are_collected(url, world, gym, tmp_path):
    golds = dict(zip(world.questions, world.golds, strict=True))

    def script(question: str, results: int) -> list[dict]:
        right = world.questions.index(question) % 2 == 1
        turns = [
            [call("search", query=question)],
            # Not a tool, and then one with the wrong argument: the session goes on.
            [call("look_up", word="town")],
            [call("search", q="town")],
            [message(golds[question] if right else "nobody")],
        ]
        return turns[results]

    one = gym(url)
    tasks = list(forage.Client(url).tasks(6))
    found = one.collect(tmp_path, tasks, one.scripted(script), repeats=2)
    assert len(found.rollouts) == 12
    for rollout in found.rollouts:
        task_id = rollout["verifier_metadata"]["task_id"]
        right = int(task_id.rsplit("-", 1)[1]) % 2 == 1
        assert rollout["reward"] == rollout["reward_components"]["em"] == float(right)
        outputs = [item["output"] for item in rollout["response"]["output"] if item["type"] == "function_call_output"]
        assert "<information>" in json.loads(outputs[0])["result"]
        assert "detail" in json.loads(outputs[1])
        assert "it takes `query`" in json.loads(outputs[2])["error"]
    assert found.metrics["key_metrics"]["mean/reward"] == 0.5
    # Our route gives what NeMo-Gym's own servers would have given.
    theirs = compute_aggregate_metrics(found.rollouts).model_dump()
    assert found.metrics["key_metrics"] == pytest.approx(theirs["key_metrics"])
    assert found.metrics["agent_metrics"] == pytest.approx(theirs["agent_metrics"])
    assert forage.Client(url).ready()


def test_an_answer_by_its_tool_is_scored(url, world, gym, tmp_path):
    one = gym(url)
    model = one.scripted(
        lambda question, results: [[call("answer", answer=world.golds[0])], [message("Done.")]][results]
    )
    (rollout,) = one.collect(tmp_path, list(forage.Client(url).tasks(1)), model, repeats=1).rollouts
    assert rollout["reward"] == 1.0


def test_a_fault_gives_no_rollout(dead_url, world, gym, tmp_path):
    one = gym(dead_url)
    model = one.scripted(lambda question, results: [[call("search", query="town")], [message("nobody")]][results])
    with pytest.raises(ClientResponseError, match="500"):
        one.collect(tmp_path, list(forage.Client(dead_url).tasks(1)), model, repeats=1)
    assert not (tmp_path / "rollouts.jsonl").read_text()


def test_a_real_policy_answers(world, gym, tmp_path):
    """It writes tags and calls no tools: so it has searched before, and answers through NeMo-Gym."""
    checkpoint = str(chat_checkpoint(tmp_path))
    with (
        serving("--config", str(CONFIG), "--limit", "64") as url,
        serving(checkpoint, "--name", "policy", "--cache-mib", "64", kind="policy") as policy,
    ):
        one = gym(url)
        config = VLLMModelConfig(
            base_url=policy + "/v1",
            api_key="none",
            model="policy",
            return_token_id_information=False,
            uses_reasoning_parser=False,
            extra_body={"stop": ["</search>", "</answer>"], "include_stop_str_in_output": True},
            **one.model,
        )
        model = VLLMModel(config=config, server_client=one.client)
        rows = []
        for task in forage.Client(url).tasks(32):
            with forage.Client(url).reset(task_id=task.task_id) as episode:
                prompt, stop = episode.observation.text, episode.observation.stop
                turn = sampled(policy, prompt, stop)
                shown = episode.step(turn).observation.text
            rows.append(SimpleNamespace(question=prompt + turn + shown, task_id=task.task_id))
        found = one.collect(tmp_path, rows, model, repeats=2)
    rewards = [rollout["reward"] for rollout in found.rollouts]
    assert len(rewards) == 64
    assert 0 < sum(rewards) < len(rewards)
    assert found.metrics["key_metrics"]["mean/reward"] == pytest.approx(sum(rewards) / len(rewards))
    assert found.metrics["key_metrics"]["mean/output_tokens"] > 0
