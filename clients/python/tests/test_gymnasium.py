import warnings

import pytest

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")

import numpy as np  # noqa: E402
from gymnasium.utils.env_checker import check_env  # noqa: E402

from forage import Conflict, Infra  # noqa: E402
from forage.gymnasium import BatchFault, Words  # noqa: E402

ID = "forage/episode-v0"


def test_gymnasiums_own_check(url):
    env = gymnasium.make(ID, base_url=url, disable_env_checker=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_an_episode(url, world):
    env = gymnasium.make(ID, base_url=url, render_mode="ansi")
    text, info = env.reset(seed=3, options={"task_index": 2})
    assert world.questions[2] in text
    assert (info["seed"], info["question"]) == (3, world.questions[2])
    shown, reward, terminated, truncated, info = env.step("<search>town</search>")
    assert (reward, terminated, truncated) == (0.0, False, False)
    text, reward, terminated, truncated, info = env.step(f"<answer>{world.golds[2]}</answer>")
    assert (text, reward, terminated, truncated) == ("", 1.0, True, False)
    assert info["score"]["total"] == 1.0
    assert shown in env.render()
    with pytest.raises(Conflict):
        env.step("x")
    env.close()


def test_rewards_of_steps_add_up_to_the_score(paid_url):
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(ID, base_url=paid_url))
    for _ in range(2):
        env.reset(options={"task_index": 0})
        rewards = [env.step(turn)[1] for turn in ("<search>Who?</search>", "<search>Who?</search>")]
        _, last, _, _, info = env.step("<answer>Ada</answer>")
        assert [*rewards, last] == [0.25, 0.25, 0.75]
        assert info["episode"]["r"] == info["score"]["total"] == 1.25
    env.close()
    envs = gymnasium.make_vec(ID, num_envs=2, vectorization_mode="vector_entry_point", base_url=paid_url)
    envs.reset(seed=5)
    rewards = [
        envs.step([first, "<search>Who?</search>"])[1].tolist()
        for first in ("<search>Who?</search>", "<answer>Ada</answer>", "", "<answer>Ada</answer>")
    ]
    assert rewards == [[0.25, 0.25], [0.75, 0.25], [0.0, 0.25], [0.75, 0.25]]
    envs.close()


def test_a_fault_is_raised(dead_url):
    env = gymnasium.make(ID, base_url=dead_url)
    env.reset(seed=1)
    with pytest.raises(Infra):
        env.step("<search>town</search>")
    assert env.reset(seed=2)[1]["turn"] == 0
    env.close()


def test_words_are_of_any_script():
    words = Words(100)
    words.seed(1)
    assert "Straße 東京 😀" in words
    assert "x" * 101 not in words
    assert all(words.sample() in words for _ in range(100))


def test_processes_read_whole_texts_or_say_why_not(url, world):
    with pytest.raises(ValueError, match="shared_memory=False"):
        gymnasium.make_vec(ID, num_envs=2, vectorization_mode="async", base_url=url)
    kwargs = {"shared_memory": False, "context": "spawn"}
    envs = gymnasium.make_vec(ID, num_envs=2, vectorization_mode="async", vector_kwargs=kwargs, base_url=url)
    texts, _ = envs.reset(options={"task_index": 2})
    assert all(world.questions[2] in text for text in texts)
    envs.close()


def test_a_vector_resets_what_is_over(url, world):
    envs = gymnasium.make_vec(ID, num_envs=3, vectorization_mode="vector_entry_point", base_url=url)
    texts, info = envs.reset(seed=5)
    assert info["seed"].tolist() == [5, 6, 7]
    places = [world.questions.index(question) for question in info["question"]]
    actions = [f"<answer>{world.golds[places[0]]}</answer>", "<search>town</search>", "<answer>wrong</answer>"]
    texts, rewards, terminated, truncated, info = envs.step(actions)
    assert rewards.tolist() == [1.0, 0.0, 0.0]
    assert terminated.tolist() == [True, False, True]
    assert not truncated.any()
    assert "<information>" in texts[1]
    texts, rewards, terminated, truncated, info = envs.step(["", f"<answer>{world.golds[places[1]]}</answer>", ""])
    assert rewards.tolist() == [0.0, 1.0, 0.0]
    assert terminated.tolist() == [False, True, False]
    assert info["turn"].tolist() == [0, 2, 0]
    assert all(world.questions.index(info["question"][member]) >= 0 for member in (0, 2))
    envs.close()


def test_a_vector_takes_one_seed_and_one_action_for_each(url):
    envs = gymnasium.make_vec(ID, num_envs=2, vectorization_mode="vector_entry_point", base_url=url)
    for seed in (np.int64(5), np.array([5, 6]), [5, 6]):
        assert envs.reset(seed=seed)[1]["seed"].tolist() == [5, 6]
    with pytest.raises(ValueError, match="3 seeds for 2 environments"):
        envs.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match="1 action for 2 environments"):
        envs.step(["x"])
    with pytest.raises(ValueError, match="a str for 2 environments"):
        envs.step("xy")
    envs.close()


def test_a_vector_takes_options_for_all_or_for_each(url, world):
    envs = gymnasium.make_vec(ID, num_envs=2, vectorization_mode="vector_entry_point", base_url=url)
    for options, places in (
        ({"task_index": 2}, (2, 2)),
        ([{"task_index": 0}, {"task_index": 1}], (0, 1)),
    ):
        asked = envs.reset(seed=5, options=options)[1]["question"]
        assert list(asked) == [world.questions[place] for place in places]
    asked = envs.reset(seed=5, options=[None, {"task_index": 1}])[1]["question"]
    assert asked[1] == world.questions[1]
    with pytest.raises(ValueError, match="1 option for 2 environments"):
        envs.reset(options=[{"task_index": 0}])
    envs.close()


def test_a_vectors_faults_are_raised(dead_url):
    envs = gymnasium.make_vec(ID, num_envs=2, vectorization_mode="vector_entry_point", base_url=dead_url)
    envs.reset(seed=5)
    with pytest.raises(BatchFault) as caught:
        envs.step(["<search>town</search>", "<answer>wrong</answer>"])
    assert list(caught.value.faults) == [0]
    assert isinstance(caught.value.faults[0], Infra)
    assert str(caught.value).startswith("member 0 had a fault: ")
    texts, rewards, terminated, truncated, info = caught.value.results
    assert texts == ("", "")
    assert np.isnan(rewards[0])
    assert rewards[1] == info["score"]["total"][1]
    assert (terminated.tolist(), truncated.tolist()) == ([False, True], [True, False])
    assert info["_turn"].tolist() == [False, True]
    texts, *_ = envs.step(["", ""])
    assert all(texts)
    envs.close()
