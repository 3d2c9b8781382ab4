import asyncio
import threading
from contextlib import closing, suppress
from types import SimpleNamespace

import pytest
from policy import Bytes, agrees, script, written

from forage import Client, Infra
from forage.tokens import Codec, Episode, Threads, play
from forage.trl import _cut, _ends

CODEC = Codec(Bytes())


def test_ids_stay_as_they_were_sampled(client, world):
    episode = Episode(client, CODEC, client.info(), task_index=0)
    turns = [script(world.golds[0], turn) for turn in range(2)]
    assert bytes(episode.context).decode() == episode.observation.text
    assert not episode.take(written(turns[0]))
    assert episode.context == episode.transcript.prompt_ids + episode.transcript.response_ids
    assert episode.reward is None
    assert episode.take(written(turns[1]))
    done = episode.transcript
    assert episode.reward == 1.0
    agrees(done.response_ids, done.mask, done.logprobs, turns)


def test_turns_that_are_paid_are_paid_once(paid_url):
    client = Client(paid_url)
    episode = Episode(client, CODEC, client.info(), task_index=0)
    for turn in range(2):
        assert episode.reward is None
        episode.take(written(script("Ada", turn)))
    assert episode.reward == 1.0


def test_a_chat_template_goes_around_the_prompt(client):
    episode = Episode(client, Codec(Bytes(), chat=True), client.info(), task_index=0)
    assert bytes(episode.context).decode() == f"[user]{episode.observation.text}[assistant]"
    episode.close()


def test_a_turn_ends_at_whichever_end_token_the_model_lists():
    # What follows is padding.
    turn = _cut(SimpleNamespace(room=9), [97, 98, 7, 7, 7], [-0.5] * 5, Bytes(), (), _ends([256, 7], 256))
    assert (turn.ids, turn.logprobs, turn.finish) == ([97, 98, 7], [-0.5] * 3, "eos")
    assert CODEC.decode(turn.ids, ended=True) == "ab"
    assert _ends(None, 256) == _ends(256, None) == {256}


def test_no_room_ends_an_episode_as_truncated(client, world):
    info = client.info()
    episode = Episode(client, CODEC, info, max_response=40, task_index=0)
    assert episode.room == 40
    # The observation does not fit any more, and is not shown.
    assert episode.take(written(script("", 0)))
    assert episode.observation.truncated
    assert episode.transcript.mask == [1] * len("<search>town</search>")
    episode = Episode(client, CODEC, info, max_response=10, task_index=0)
    assert episode.take(written("I wonder, ", "length"))
    assert episode.observation.ending == {"how": "truncated", "limit": "context"}
    assert episode.reward == 0.0


def test_wrong_generations_are_refused(client):
    episode = Episode(client, CODEC, client.info(), task_index=0)
    generation = written("abc")
    with pytest.raises(ValueError, match="3 ids have 2"):
        episode.take(type(generation)(generation.ids, generation.logprobs[:2], "stop"))
    episode.close()


def test_faults_are_played_anew_and_then_raised(dead_url):
    client, begun = Client(dead_url), []

    async def turn(episode):
        begun.append(episode)
        return written(script("", 0))

    with closing(Threads(2)) as threads, pytest.raises(Infra):
        asyncio.run(play(client, CODEC, client.info(), turn, threads, attempts=3, task_index=0))
    assert len(set(map(id, begun))) == 3
    assert all(episode.reward is None for episode in begun)


def test_a_prompt_that_leaves_no_room_is_told(client):
    async def turn(episode):
        raise AssertionError("there is no room for a turn")

    with closing(Threads(2)) as threads, pytest.raises(ValueError, match=r"prompt has \d+ tokens and leaves none"):
        asyncio.run(play(client, CODEC, client.info(), turn, threads, max_response=0, task_index=0))


def test_an_engine_that_gives_up_leaves_no_reward(client):
    async def turn(episode):
        return None

    with closing(Threads(2)) as threads:
        episode = asyncio.run(play(client, CODEC, client.info(), turn, threads, task_index=0))
    assert episode.reward is None


@pytest.mark.parametrize("when", ["it is begun", "a turn is sampled", "sampling fails"])
def test_an_episode_is_left_however_its_play_ends(when):
    observation = SimpleNamespace(text="Who?", done=False, forced_prefix=None)
    closed, begins, goes_on = [], threading.Event(), threading.Event()

    def reset(**task):
        begins.set()
        assert goes_on.wait(20)
        return SimpleNamespace(observation=observation, close=lambda: closed.append(task))

    async def turn(episode):
        if when == "sampling fails":
            raise RuntimeError("no memory")
        await asyncio.sleep(20)

    async def stopped(threads):
        info = SimpleNamespace(max_episode_tokens=100, max_turn_tokens=10)
        playing = asyncio.create_task(play(SimpleNamespace(reset=reset), CODEC, info, turn, threads, task_index=7))
        while not begins.is_set():
            await asyncio.sleep(0.01)
        if when == "it is begun":
            playing.cancel()
            await asyncio.sleep(0.1)
        goes_on.set()
        await asyncio.sleep(0.1)
        playing.cancel()
        with suppress(asyncio.CancelledError, RuntimeError):
            await playing

    with closing(Threads(2)) as threads:
        asyncio.run(stopped(threads))
    assert closed == [{"task_index": 7}]


def test_episodes_that_wait_for_a_place_do_not_keep_it_from_becoming_free():
    places, most = threading.Semaphore(1), 12

    class Session:
        observation = SimpleNamespace(text="Who?", done=False, forced_prefix=None)
        reward = 1.0

        def step(self, text, finish):
            self.observation = SimpleNamespace(text="", done=True, forced_prefix=None)
            places.release()
            return self.observation

        def close(self):
            pass

    def reset():
        # As a client with patience waits.
        assert places.acquire(timeout=20)
        return Session()

    async def turn(episode):
        return written("Ada")

    async def played(threads):
        info = SimpleNamespace(max_episode_tokens=100, max_turn_tokens=10, stop=())
        client = SimpleNamespace(reset=reset)
        return await asyncio.gather(*(play(client, CODEC, info, turn, threads) for _ in range(most)))

    with closing(Threads(4)) as threads:
        episodes = asyncio.run(asyncio.wait_for(played(threads), 10))
    assert [episode.reward for episode in episodes] == [1.0] * most
