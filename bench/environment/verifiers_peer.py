"""The oracle's search turns in verifiers' own environment loop: verifiers_peer.py URL EPISODES SECONDS.

A `MultiTurnEnv` as verifiers' users write one: a search asks URL over a connection that stays open, and a rollout is scored by exact match.
The model writes the recorded turns, which takes no time. Rollouts are played and scored as `evaluate` does, some at a time. Prints how many
of the episodes it pays for, beside how many were recorded as right, then episodes per second by rollouts at a time.
"""

import asyncio
import itertools
import json
import logging
import re
import sys
import time

import httpx
import verifiers as vf
from datasets import Dataset
from verifiers.types import Response, ResponseMessage

SESSIONS = (1, 32, 256)


def plain(text):
    """An answer as SQuAD's exact match compares it."""
    return re.sub(r"\b(a|an|the)\b|[^\w\s]", " ", text.lower()).split()


def last(state):
    """What the model wrote last."""
    return state["trajectory"][-1]["completion"][-1].content


async def exact_match(state):
    found = re.search(r"<answer>(.*?)</answer>", last(state), re.S)
    return float(found is not None and any(plain(found[1]) == plain(gold) for gold in state["info"]["golds"]))


class Oracle(vf.Client):
    """A model that writes the turns of an episode."""

    def __init__(self):
        super().__init__(None)

    async def get_response(self, prompt, model, sampling_args, tools=None, *, state, **_):
        text = state["info"]["turns"][len(state["trajectory"])]
        message = ResponseMessage(content=text, finish_reason="stop", is_truncated=False)
        return Response(id="", created=0, model=model, message=message)

    def setup_client(self, config):
        raise NotImplementedError

    async def close(self):
        pass

    # What an engine's answer would pass through.
    to_native_tool = to_native_prompt = get_native_response = raise_from_native_response = from_native_response = setup_client


class Search(vf.MultiTurnEnv):
    """Questions with a search over HTTP, three passages each."""

    def __init__(self, http, url, episodes):
        self.http, self.url = http, f"{url}/retrieve"
        rows = [
            {
                "prompt": [{"role": "user", "content": episode["question"]}],
                "answer": episode["golds"][0],
                "info": {"turns": episode["turns"], "golds": episode["golds"]},
            }
            for episode in episodes
        ]
        super().__init__(eval_dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[exact_match]))

    async def env_response(self, messages, state, **_):
        query = re.search(r"<search>(.*?)</search>", last(state), re.S)[1].strip()
        answer = await self.http.post(self.url, json={"queries": [query], "topk": 3, "return_scores": True})
        hits = answer.raise_for_status().json()["result"][0]
        passages = "\n".join(f"Doc {number}: {hit['document']['contents']}" for number, hit in enumerate(hits, 1))
        return [vf.UserMessage(role="user", content=f"<information>{passages}</information>")]

    @vf.stop
    async def answered(self, state):
        return bool(state["trajectory"]) and "</answer>" in last(state)


async def measured(url, file, seconds):
    logging.disable(logging.CRITICAL)
    with open(file, encoding="utf-8") as lines:
        episodes = [json.loads(line) for line in lines]
    # As many connections as rollouts at a time.
    limits = httpx.Limits(max_connections=max(SESSIONS), max_keepalive_connections=max(SESSIONS))
    async with httpx.AsyncClient(limits=limits, timeout=60) as http:
        environment, oracle = Search(http, url, episodes), Oracle()
        inputs = environment.get_eval_dataset().to_list()

        async def play(number):
            output = await environment.run_rollout(inputs[number % len(inputs)], oracle, "oracle", {})
            if output.get("error") is not None:
                sys.exit(f"episode {number % len(inputs)}: {output['error']}")
            return output["reward"] > 0

        paid = sum([await play(number) for number in range(len(inputs))])
        print(json.dumps({"paid": paid, "expected": sum(episode["right"] for episode in episodes)}), flush=True)
        for sessions in SESSIONS:
            numbers, begun = itertools.count(), time.monotonic()

            async def session(numbers=numbers, until=begun + seconds):
                played = 0
                while time.monotonic() < until:
                    await play(next(numbers))
                    played += 1
                return played

            played = sum(await asyncio.gather(*(session() for _ in range(sessions))))
            print(json.dumps({sessions: played / (time.monotonic() - begun)}), flush=True)


asyncio.run(measured(sys.argv[1], sys.argv[2], float(sys.argv[3])))
