"""The clients of others against the environment server: OpenEnv's Python package, the MCP SDK, and plain HTTP.

Usage: test_environment.py URL URL_WITH_TOKEN URL_WITH_DEAD_RETRIEVER QUESTIONS_JSONL. Prints a line per check; the last line is
JSON. Exit code 1 if any failed. The token is `secret`.
"""

import asyncio
import json
import re
import sys
import urllib.error
import urllib.request

import httpx2
from checks import check, failed, refused, results
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from openenv.core.generic_client import GenericEnvClient

URL, CLOSED, DEAD, QUESTIONS = sys.argv[1:5]
with open(QUESTIONS, encoding="utf-8") as lines:
    ROWS = [json.loads(line) for line in lines]


def http(url, body=None, **headers):
    """Status and JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def openenv_over_websocket():
    with GenericEnvClient(base_url=URL).sync() as env:
        begun = env.reset(task_index=0, seed=7)
        question = ROWS[0]["question"]
        check("OpenEnv: reset", question in begun.observation["text"] and begun.reward is None and not begun.done)
        found = env.step({"text": f"<search>{question}</search>"})
        check(
            "OpenEnv: a search", "<information>" in found.observation["text"] and found.reward == 0 and not found.done
        )
        state = env.state()
        check("OpenEnv: state", state["step_count"] == 1 and state["status"] == "running")
        end = env.step({"text": f"<answer>{ROWS[0]['golden_answers'][0]}</answer>"})
        check("OpenEnv: the right answer", end.reward == 1.0 and end.done)
        check("OpenEnv: the score by parts", end.observation["info"]["score"]["parts"]["em"] == 1.0)
        over = refused(RuntimeError, lambda: env.step({"text": "<answer>again</answer>"}))
        check("OpenEnv: no turn after the end", over and "SESSION_ERROR" in str(over))
        wrong = refused(RuntimeError, lambda: env.reset(task_id="nonsense"))
        check("OpenEnv: a wrong task is named", wrong and "there is no task" in str(wrong))
        env.reset(task_index=1)
        end = env.step({"text": "<answer>not this</answer>"})
        check("OpenEnv: the next episode on the same connection", end.reward == 0.0 and end.done)
    with GenericEnvClient(base_url=URL).sync() as one, GenericEnvClient(base_url=URL).sync() as other:
        texts = [env.reset(seed=5).observation["text"] for env in (one, other)]
        check("OpenEnv: a seed asks the same of two", texts[0] == texts[1])
    check("OpenEnv: connections give their places back", gone())


def gone():
    """Whether no session is left, within a while."""
    for _ in range(50):
        with urllib.request.urlopen(URL + "/metrics") as answer:
            text = answer.read().decode()
        if float(re.search(r"^forage_environment_sessions_active(?:{[^}]*})? ([0-9.]+)$", text, re.M)[1]) == 0:
            return True
        asyncio.run(asyncio.sleep(0.1))
    return False


def openenv_tools():
    with GenericEnvClient(base_url=URL).sync() as env:
        env.reset(task_index=2)
        tools = env.step({"type": "list_tools"}).observation["tools"]
        check("OpenEnv: tools are listed", [tool["name"] for tool in tools] == ["search", "answer", "write_turn"])
        call = {"type": "call_tool", "tool_name": "answer", "arguments": {"answer": ROWS[2]["golden_answers"][0]}}
        check("OpenEnv: a tool's call is a turn", env.step(call).reward == 1.0)


def openenv_over_http():
    status, begun = http(URL + "/reset", {"task_index": 3, "episode_id": "mine"})
    check(
        "HTTP: reset",
        status == 200
        and begun["episode_id"] == "mine"
        and set(begun) == {"observation", "reward", "done", "episode_id"},
    )
    step = {
        "episode_id": "mine",
        "action": {"text": f"<answer>{ROWS[3]['golden_answers'][0]}</answer>"},
        "request_id": "1",
    }
    first = http(URL + "/step", step)
    check("HTTP: the right answer", first[0] == 200 and first[1]["reward"] == 1.0)
    check("HTTP: the same request again has the same answer", http(URL + "/step", step) == first)
    status, health = http(URL + "/health")
    check("HTTP: health", status == 200 and health["status"] == "healthy")
    status, schema = http(URL + "/schema")
    check("HTTP: schema", status == 200 and set(schema) == {"action", "observation", "state"})
    status, wrong = http(URL + "/step", {"episode_id": "nobody", "action": {"text": "x"}})
    check("HTTP: an unknown session", status == 404 and wrong["cause"] == "unknown_session")
    status, wrong = http(URL + "/step", {"episode_id": "mine", "action": {"texts": "x"}})
    check("HTTP: an unknown field is named", status == 422 and "texts" in json.dumps(wrong["detail"]))


def tokens():
    for name, headers in {"no": {}, "a wrong": {"Authorization": "Bearer wrong"}}.items():
        status, answer = http(CLOSED + "/reset", {}, **headers)
        check(f"token: {name} token is refused", status == 401 and answer["cause"] == "unauthorized")
    status, _ = http(CLOSED + "/reset", {}, Authorization="Bearer secret")
    check("token: the right one is taken", status == 200)
    check("token: health needs none", http(CLOSED + "/healthz")[0] == 200)
    failed = refused(ConnectionError, lambda: GenericEnvClient(base_url=CLOSED).sync().connect())
    check("token: OpenEnv's client without one cannot connect", failed and "401" in str(failed))
    address = CLOSED.replace("http://", "http://user:secret@")
    with GenericEnvClient(base_url=address).sync() as env:
        check("token: OpenEnv's client with one in its address", env.reset(seed=1).observation["text"])
    check("token: MCP without one cannot connect", refused(BaseException, lambda: asyncio.run(mcp_tools(CLOSED))))
    check("token: MCP with one", len(asyncio.run(mcp_tools(CLOSED, "secret"))) == 4)


async def mcp_tools(url, token=None):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers) as client:
        transport = streamable_http_client(url + "/mcp", http_client=client)
        async with Client(transport) as mcp:
            return [tool.name for tool in (await mcp.list_tools()).tools]


async def mcp_episode(mode):
    """A whole episode through the SDK: `legacy` with a session, `auto` by the newest protocol both know."""
    async with Client(URL + "/mcp", mode=mode) as mcp:
        names = {tool.name for tool in (await mcp.list_tools()).tools}
        check(f"MCP {mode}: tools", names == {"new_question", "search", "answer", "write_turn"})
        begun = await mcp.call_tool("new_question", {"task_index": 4})
        seen = begun.structured_content["observation"]
        check(f"MCP {mode}: a question", seen["question"] == ROWS[4]["question"] and not begun.is_error)
        named = {} if mode == "legacy" else {"episode_id": seen["episode_id"]}
        found = await mcp.call_tool("search", {"query": ROWS[4]["question"], **named})
        check(f"MCP {mode}: a search", "<information>" in found.structured_content["observation"]["text"])
        wrong = await mcp.call_tool("search", {"q": "x", **named})
        check(f"MCP {mode}: wrong arguments are an error the model reads", wrong.is_error)
        end = await mcp.call_tool("answer", {"answer": ROWS[4]["golden_answers"][0], **named})
        check(
            f"MCP {mode}: the right answer", end.structured_content["reward"] == 1.0 and end.structured_content["done"]
        )


def faults():
    with GenericEnvClient(base_url=DEAD).sync() as env:
        env.reset(task_index=0)
        failed = refused(RuntimeError, lambda: env.step({"text": "<search>x</search>"}))
        check("fault: OpenEnv's client raises", failed and "EXECUTION_ERROR" in str(failed))
        check("fault: no score", env.state().get("score") is None)
        env.reset(task_index=0)
        check("fault: the connection plays on", env.step({"text": "<answer>x</answer>"}).reward == 0.0)
    _, begun = http(DEAD + "/reset", {"task_index": 0})
    status, answer = http(DEAD + "/step", {"episode_id": begun["episode_id"], "action": {"text": "<search>x</search>"}})
    check(
        "fault: 503 with its cause", (status, answer["code"], answer["cause"]) == (503, "EXECUTION_ERROR", "retriever")
    )
    check("fault: no reward anywhere", "reward" not in answer)

    async def by_mcp():
        async with Client(DEAD + "/mcp", mode="legacy") as mcp:
            await mcp.call_tool("new_question", {"task_index": 0})
            return await mcp.call_tool("search", {"query": "x"})

    found = asyncio.run(by_mcp())
    check("fault: MCP says so", found.is_error and "reward" not in (found.structured_content or {}))


for part in (openenv_over_websocket, openenv_tools, openenv_over_http, tokens, faults):
    try:
        part()
    except Exception as error:  # a failure of the part, whatever it is
        check(f"{part.__name__}: {type(error).__name__}: {error}", False)
for mode in ("legacy", "auto"):
    try:
        asyncio.run(mcp_episode(mode))
    except Exception as error:
        check(f"MCP {mode}: {type(error).__name__}: {error}", False)
print(json.dumps({"passed": len(results) - len(failed()), "failed": failed()}))
sys.exit(1 if failed() else 0)
