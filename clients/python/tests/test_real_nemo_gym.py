"""NeMo-Gym itself: its agent, its model servers and its rollout collection, with `forage serve env` as the resources server.

The agent's tools are called by a scripted model server of NeMo-Gym's kind; a real policy answers through NeMo-Gym's own vLLM
model server. All parts but ours run in this process, each on a port of its own, as `ng_run` starts them in processes.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nemo_gym", reason="nemo-gym is not installed")

import nemo_gym.global_config  # noqa: E402
import uvicorn  # noqa: E402
from conftest import serving  # noqa: E402
from fastapi import Body  # noqa: E402
from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel  # noqa: E402
from nemo_gym.config_types import BaseServerConfig, ModelServerRef, ResourcesServerRef  # noqa: E402
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming  # noqa: E402
from nemo_gym.reward_profile import compute_aggregate_metrics  # noqa: E402
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper  # noqa: E402
from nemo_gym.server_utils import ServerClient  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from real import CONFIG, chat_checkpoint, forage  # noqa: E402
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig  # noqa: E402
from responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig  # noqa: E402

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

    async def chat_completions(self, body: dict = Body()) -> None:
        raise NotImplementedError

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        items = [item if isinstance(item, dict) else item.model_dump() for item in body.input]
        results = sum(item.get("type") == "function_call_output" for item in items)
        fields = {"id": "r", "created_at": 0, "model": "m", "object": "response", "tools": []}
        output = self.script(items[0]["content"], results)
        return NeMoGymResponse(**fields, output=output, parallel_tool_calls=False, tool_choice="auto")


class Gym:
    """A head's view of a resources server, an agent and a model server."""

    def __init__(self, monkeypatch, resources: str) -> None:
        self._servers: list[uvicorn.Server] = []
        self._ports = {name: self._free() for name in ("agent", "model")}
        host, port = resources.removeprefix("http://").rsplit(":", 1)
        addresses = {name: {"host": "127.0.0.1", "port": number} for name, number in self._ports.items()}
        addresses["forage"] = {"host": host, "port": int(port)}
        kinds = {"agent": "responses_api_agents", "model": "responses_api_models", "forage": "resources_servers"}
        servers = {name: {kinds[name]: {"any": address}} for name, address in addresses.items()}
        self._config = OmegaConf.create({**servers, "head_server": {"host": "127.0.0.1", "port": 1}})
        monkeypatch.setattr(nemo_gym.global_config, "_GLOBAL_CONFIG_DICT", self._config)
        self.client = ServerClient(
            head_server_config=BaseServerConfig(host="127.0.0.1", port=1), global_config_dict=self._config
        )
        monkeypatch.setattr(RolloutCollectionHelper, "setup_server_client", lambda helper, head=None: self.client)
        shared = {"host": "127.0.0.1", "entrypoint": "app.py"}
        model = ModelServerRef(type="responses_api_models", name="model")
        server = ResourcesServerRef(type="resources_servers", name="forage")
        config = SimpleAgentConfig(
            name="agent", port=self._ports["agent"], resources_server=server, model_server=model, max_steps=6, **shared
        )
        self.model_fields = {"name": "model", "port": self._ports["model"], **shared}
        self.serve(SimpleAgent(config=config, server_client=self.client))

    @staticmethod
    def _free() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    def serve(self, server) -> None:
        """As `run_webserver` does, but for Ray and the process."""
        app = server.setup_webserver()
        server.setup_exception_middleware(app)
        running = uvicorn.Server(
            uvicorn.Config(app, host="127.0.0.1", port=server.config.port, log_level="warning", lifespan="off")
        )
        self._servers.append(running)
        threading.Thread(target=running.run, daemon=True).start()
        while not running.started:
            time.sleep(0.01)

    def scripted(self, script: Script) -> None:
        config = BaseResponsesAPIModelConfig(**self.model_fields)
        self.serve(Scripted(config=config, server_client=self.client, script=script))

    def collect(self, folder: Path, tasks: list, repeats: int) -> SimpleNamespace:
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
        asyncio.run(RolloutCollectionHelper().run_from_config(config))
        (metrics,) = json.loads((folder / "rollouts_aggregate_metrics.json").read_text())
        return SimpleNamespace(rollouts=list(map(json.loads, output.read_text().splitlines())), metrics=metrics)

    def close(self) -> None:
        for server in self._servers:
            server.should_exit = True


@pytest.fixture
def gym(monkeypatch) -> Iterator[Callable[[str], Gym]]:
    made: list[Gym] = []

    def make(resources: str) -> Gym:
        nemo_gym.server_utils._GLOBAL_AIOHTTP_CLIENT = None
        made.append(Gym(monkeypatch, resources))
        return made[-1]

    yield make
    for one in made:
        one.close()


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
    one.scripted(script)
    tasks = list(forage.Client(url).tasks(6))
    found = one.collect(tmp_path, tasks, repeats=2)
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
    one.scripted(lambda question, results: [[call("answer", answer=world.golds[0])], [message("Done.")]][results])
    (rollout,) = one.collect(tmp_path, list(forage.Client(url).tasks(1)), repeats=1).rollouts
    assert rollout["reward"] == 1.0


def test_a_fault_gives_no_rollout(dead_url, world, gym, tmp_path):
    one = gym(dead_url)
    one.scripted(lambda question, results: [[call("search", query="town")], [message("nobody")]][results])
    with pytest.raises(Exception, match="500"):
        one.collect(tmp_path, list(forage.Client(dead_url).tasks(1)), repeats=1)
    assert not (tmp_path / "rollouts.jsonl").read_text()


def test_a_real_policy_answers(world, gym, tmp_path):
    """Without a search the built-in policy guesses; what it says is graded all the same."""
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
            **one.model_fields,
        )
        one.serve(VLLMModel(config=config, server_client=one.client))
        found = one.collect(tmp_path, list(forage.Client(url).tasks(32)), repeats=2)
    rewards = [rollout["reward"] for rollout in found.rollouts]
    assert len(rewards) == 64
    assert 0 < sum(rewards) < len(rewards)
    assert found.metrics["key_metrics"]["mean/reward"] == pytest.approx(sum(rewards) / len(rewards))
    assert found.metrics["key_metrics"]["mean/output_tokens"] > 0
