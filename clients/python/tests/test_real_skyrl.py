"""SkyRL-gym itself: environments that its registry makes and a real policy plays; its own search environment and tool."""

import json
from types import SimpleNamespace

import pytest

skyrl_gym = pytest.importorskip("skyrl_gym", reason="skyrl-gym is not installed")

from conftest import serving  # noqa: E402
from real import CONFIG, adapter, forage, sampled  # noqa: E402

QUESTIONS, GROUP = 12, 4


@pytest.fixture(scope="module", autouse=True)
def registered():
    adapter("skyrl").register()
    yield
    skyrl_gym.envs.deregister("forage")


def made(**row):
    return skyrl_gym.make("forage", env_config={}, extras={"max_turns": 4, **row})


def test_a_real_policy_plays(world, monkeypatch):
    """The policy reads messages one behind the other, as it was taught, and samples each turn."""
    with (
        serving("--config", str(CONFIG), "--limit", "64") as url,
        serving("builtin:quickstart", "--cache-mib", "64", kind="policy") as policy,
    ):
        monkeypatch.setenv("FORAGE_URL", url)

        rewards, metrics, replies = [], [], []
        for task in forage.Client(url).tasks(QUESTIONS):
            for _ in range(GROUP):
                env = made(extra_info={"task_id": task.task_id})
                history, details = env.init([{"role": "user", "content": task.question}])
                assert task.question in history[0]["content"]
                done, total = False, 0.0
                while not done:
                    action = sampled(policy, "".join(message["content"] for message in history), details["stop"])
                    step = env.step(action)
                    done, total = step["done"], total + step["reward"]
                    history += [{"role": "assistant", "content": action}, *step["observations"]]
                    replies += step["observations"]
                rewards.append(total)
                metrics.append(env.get_metrics())
                env.close()
    assert 0 < sum(rewards) < len(rewards)
    assert all("<information>" in reply["content"] for reply in replies)
    assert replies
    aggregated = type(env.unwrapped if hasattr(env, "unwrapped") else env).aggregate_metrics(metrics)
    assert aggregated["em"] == pytest.approx(sum(rewards) / len(rewards))


def test_an_episode_that_is_left_gives_its_place_back(url, world, monkeypatch):
    monkeypatch.setenv("FORAGE_URL", url)
    env = made(task_index=0)
    env.init([])
    env.step("<search>town</search>")
    assert env.get_metrics() == {}
    env.close()
    with pytest.raises(ValueError, match="task_index"):
        made()


def test_turns_that_are_paid_are_paid_once(paid_url, monkeypatch):
    monkeypatch.setenv("FORAGE_URL", paid_url)
    env = made(task_index=0)
    env.init([])
    steps = [env.step("<search>Ada</search>"), env.step("<answer>Ada</answer>")]
    assert [step["reward"] for step in steps] == [0.0, 1.0]


def test_a_fault_is_raised(dead_url, monkeypatch):
    monkeypatch.setenv("FORAGE_URL", dead_url)
    env = made(task_index=0)
    env.init([])
    with pytest.raises(forage.Infra):
        env.step("<search>town</search>")
    env.close()


def test_its_own_search_environment_reads_our_retriever(retriever_url, world):
    """`SearchEnv`, its tool group and its grader, with `forage serve retriever` where it expects Search-R1's server."""
    config = SimpleNamespace(search_url=retriever_url + "/retrieve", topk=3, timeout=30, log_requests=False)
    extras = {"reward_spec": {"ground_truth": {"target": [world.golds[0]]}}, "max_turns": 3}
    env = skyrl_gym.make("search", env_config=config, extras=extras)
    env.init([{"role": "user", "content": world.questions[0]}])
    step = env.step(f"<search>{world.questions[0]}</search>")
    (message,) = step["observations"]
    found = json.loads(message["content"].strip().removeprefix("<information>").removesuffix("</information>"))
    assert found["result"].startswith("Doc 1: ")
    assert "Doc 3: " in found["result"]
    step = env.step(f"<answer>{world.golds[0]}</answer>")
    assert (step["done"], step["reward"]) == (True, 1.0)
