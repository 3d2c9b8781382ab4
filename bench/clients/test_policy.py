"""OpenAI's Python package against the policy server.

Usage: test_policy.py URL TOKEN SERVER_PID SECONDS. Prints a line per check; the last line is JSON. Exit code 1 if any failed.
"""

import asyncio
import json
import math
import re
import statistics
import sys
import time
import urllib.request

import openai
from checks import check, refused, results

URL, TOKEN, PID, SECONDS = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
CLIENTS = 64
QUESTION = "What is the weather in Oslo?"
# As in the lessons of the model, key by key.
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
client = openai.OpenAI(base_url=URL + "/v1", api_key=TOKEN, max_retries=0)
MODEL = client.models.list().data[0].id
ask = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "tools": TOOLS, "temperature": 0}
hello = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "temperature": 0}
HELLO = "Hello, wörld! 😀 Bye."


def metrics():
    request = urllib.request.Request(URL + "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    text = urllib.request.urlopen(request).read().decode()
    return {name: float(value) for name, value in re.findall(r"^(forage_policy_\w+) ([0-9.e+-]+)$", text, re.M)}


def rss_mib():
    with open(f"/proc/{PID}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024


def answers():
    check("models.list and models.retrieve", client.models.retrieve(MODEL).id == MODEL)
    answer = client.chat.completions.create(**hello)
    check("chat: content", answer.choices[0].message.content == HELLO and answer.choices[0].finish_reason == "stop")
    check("chat: usage", answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens)
    chunks = list(client.chat.completions.create(**hello, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    check("chat: stream", text == HELLO and len(chunks) > 5 and chunks[-1].usage == answer.usage)
    answer = client.chat.completions.create(**hello, logprobs=True, top_logprobs=3)
    told = answer.choices[0].logprobs.content
    spelled = b"".join(bytes(token.bytes) for token in told).decode()
    check("chat: bytes of the log-probabilities are the text", spelled.startswith(HELLO))
    ranked = all(token.top_logprobs[0].logprob == token.logprob <= 0 for token in told)
    check("chat: greedy tokens are the likeliest", ranked and all(len(token.top_logprobs) == 3 for token in told))
    answer = client.completions.create(model=MODEL, prompt=["user: ", "tool: "], n=2, max_tokens=5, logprobs=1, seed=7)
    check("completions: prompts times n", [choice.index for choice in answer.choices] == [0, 1, 2, 3])
    again = client.completions.create(model=MODEL, prompt=["user: ", "tool: "], n=2, max_tokens=5, logprobs=1, seed=7)
    check("completions: seeds", again.choices == answer.choices)
    parts = client.completions.create(model=MODEL, prompt="user: ", max_tokens=40, seed=3, temperature=2, stream=True)
    whole = client.completions.create(model=MODEL, prompt="user: ", max_tokens=40, seed=3, temperature=2)
    check("completions: stream", "".join(part.choices[0].text for part in parts) == whole.choices[0].text)
    body = {"model": MODEL, "prompt": "user: Say hello.\n", "echo": True, "logprobs": 1}
    scored = client.completions.create(**body, max_tokens=1, temperature=0).choices[0].logprobs
    scores = scored.token_logprobs[1:-1]
    highest = [max(top.values()) for top in scored.top_logprobs[1:-1]]
    check("completions: scores of a prompt", all(score <= top for score, top in zip(scores, highest, strict=True)))
    check("completions: scores are probabilities", all(0 < math.exp(score) <= 1 for score in scores))


def tools():
    answer = client.chat.completions.create(**ask)
    choice = answer.choices[0]
    (call,) = choice.message.tool_calls
    right = call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Oslo"}
    check("tools: the model's call is read", right and choice.finish_reason == "tool_calls")
    content, found = "", {}
    for chunk in client.chat.completions.create(**ask, stream=True):
        delta = chunk.choices[0].delta
        content += delta.content or ""
        for part in delta.tool_calls or []:
            name, arguments = found.get(part.index, ("", ""))
            found[part.index] = (name + (part.function.name or ""), arguments + (part.function.arguments or ""))
    check("tools: streamed", found == {0: (call.function.name, call.function.arguments)})
    check("tools: text beside the call", content == choice.message.content == "Let me look.")
    messages = ask["messages"] + [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "3 °C, snow"},
    ]
    answer = client.chat.completions.create(**{**ask, "messages": messages})
    check("tools: the finding is used", answer.choices[0].message.content == "It is 3 °C in Oslo: ☃ and ❄.")


def errors():
    wrong = openai.OpenAI(base_url=URL + "/v1", api_key="wrong", max_retries=0)
    check("errors: AuthenticationError", refused(openai.AuthenticationError, wrong.models.list))
    other = refused(openai.NotFoundError, lambda: client.chat.completions.create(**{**hello, "model": "other"}))
    check("errors: NotFoundError with its code", other and other.code == "model_not_found")
    hot = refused(openai.BadRequestError, lambda: client.chat.completions.create(**{**hello, "temperature": -1}))
    check("errors: BadRequestError names the field", hot and hot.param == "temperature" and "at least 0" in hot.message)
    bias = {"logit_bias": {"5": 10}}
    check("errors: nothing is ignored", refused(openai.BadRequestError, lambda: client.chat.completions.create(**hello, **bias)))
    long = {**hello, "messages": [{"role": "user", "content": "x y " * 3000}]}
    long = refused(openai.BadRequestError, lambda: client.chat.completions.create(**long))
    check("errors: a prompt over the context", long and long.code == "context_length_exceeded")


async def load():
    """Every client asks in turn for whole answers, streams, tool calls, and streams it leaves after the third piece."""
    many = openai.AsyncOpenAI(base_url=URL + "/v1", api_key=TOKEN, max_retries=0, timeout=60)
    until = time.monotonic() + SECONDS
    counts = {"whole": 0, "streamed": 0, "tools": 0, "left": 0, "wrong": 0, "failed": 0}
    sizes = []

    async def whole():
        answer = await many.chat.completions.create(**hello)
        return answer.choices[0].message.content == HELLO

    async def streamed():
        text = ""
        async for chunk in await many.chat.completions.create(**hello, stream=True):
            text += chunk.choices[0].delta.content or ""
        return text == HELLO

    async def tools():
        answer = await many.chat.completions.create(**ask)
        return len(answer.choices[0].message.tool_calls) == 1

    async def left():
        stream = await many.completions.create(
            model=MODEL, prompt="user: ", max_tokens=500, stream=True, extra_body={"ignore_eos": True}
        )
        pieces = 0
        async for _ in stream:
            pieces += 1
            if pieces == 3:
                await stream.close()
                return True
        return False

    async def one(number):
        turn = number
        kinds = [("whole", whole), ("streamed", streamed), ("tools", tools), ("left", left)]
        while time.monotonic() < until:
            name, kind = kinds[turn % 4]
            turn += 1
            try:
                counts[name if await kind() else "wrong"] += 1
            except openai.OpenAIError as error:
                counts["failed"] += 1
                print("     ", repr(error)[:200])

    async def watch():
        while time.monotonic() < until:
            sizes.append(rss_mib())
            await asyncio.sleep(0.5)

    await asyncio.gather(watch(), *(one(number) for number in range(CLIENTS)))
    await many.close()
    return counts, sizes


def main():
    answers()
    tools()
    errors()
    before = metrics()
    counts, sizes = asyncio.run(load())
    for _ in range(100):
        after = metrics()
        if after["forage_policy_running"] + after["forage_policy_waiting"] == 0:
            break
        time.sleep(0.05)
    answered = sum(counts[name] for name in ("whole", "streamed", "tools", "left"))
    check(f"load: every request of {CLIENTS} clients was answered", counts["wrong"] + counts["failed"] == 0 and answered > 0)
    check("load: nothing runs or waits afterwards", after["forage_policy_running"] + after["forage_policy_waiting"] == 0)
    check("load: those who left were cancelled", after["forage_policy_cancelled_completions_total"] > 0)
    check("load: their cache is free", after["forage_policy_cache_tokens_used"] == 0)
    # The allocator's pools wander by a tenth from second to second, so quarters are compared; the first fills the cache.
    quarter = len(sizes) // 4
    early, late = (statistics.mean(part) for part in (sizes[quarter : 2 * quarter], sizes[3 * quarter :]))
    check(f"load: memory {early:.0f} MiB in the second quarter, {late:.0f} MiB in the last", late < early * 1.1)
    tokens = after["forage_policy_generated_tokens_total"] - before["forage_policy_generated_tokens_total"]
    mean = lambda name: (after[name + "_sum"] - before[name + "_sum"]) / (after[name + "_count"] - before[name + "_count"])
    figures = {
        "requests": answered,
        "requests_per_second": round(answered / SECONDS, 1),
        "tokens_per_second": round(tokens / SECONDS),
        "mean_first_token_ms": round(1000 * mean("forage_policy_first_token_seconds"), 2),
        "mean_token_ms": round(1000 * mean("forage_policy_token_seconds"), 2),
        "cancelled": after["forage_policy_cancelled_completions_total"],
        "rss_mib_second_quarter": round(early, 1),
        "rss_mib_last_quarter": round(late, 1),
        "rss_mib_peak": round(max(sizes), 1),
    }
    figures = {"openai": openai.__version__, "checks": len(results), "passed": sum(results.values()), **counts, **figures}
    held = all(results.values())
    print(json.dumps({"bench": "clients-policy", "held": held, "figures": figures}))
    sys.exit(0 if held else 1)


main()
