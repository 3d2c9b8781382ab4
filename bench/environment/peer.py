"""The oracle's search turns in SkyRL-gym's own search environment: peer.py URL EPISODES SECONDS.

Prints how many of the episodes it pays for, beside how many were recorded as right, then episodes per second by threads at a time.
"""

import json
import logging
import sys
import threading
import time
from itertools import count

from skyrl_gym.envs.search.env import SearchEnv, SearchEnvConfig

logging.disable(logging.CRITICAL)


def play(config, episode):
    extras = {"reward_spec": {"ground_truth": {"target": episode["golds"]}}, "max_turns": len(episode["turns"]) + 1}
    env = SearchEnv(config, extras)
    env.init([{"role": "user", "content": episode["question"]}])
    for turn in episode["turns"]:
        last = env.step(turn)
    env.close()
    assert last["done"]
    return last["reward"]


def main():
    url, file, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    episodes = [json.loads(line) for line in open(file)]
    config = SearchEnvConfig(search_url=f"{url}/retrieve", topk=3)
    paid = sum(play(config, episode) > 0 for episode in episodes)
    print(json.dumps({"paid": paid, "expected": sum(episode["right"] for episode in episodes)}), flush=True)
    for threads in (1, 32, 256):
        numbers, played, until = count(), [0] * threads, time.monotonic() + seconds

        def session(index):
            while time.monotonic() < until:
                play(config, episodes[next(numbers) % len(episodes)])
                played[index] += 1

        began = time.monotonic()
        running = [threading.Thread(target=session, args=(index,)) for index in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        rate = sum(played) / (time.monotonic() - began)
        print(json.dumps({threads: rate}), flush=True)


main()
