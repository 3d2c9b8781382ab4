"""Clients of the Search-R1 protocol, written from what they are known to send and to read.

Each client gets 0, 1, 2, 3 and many queries, in the ways it can send them, with scores on and off where it has a say; what it
makes of the answers is compared with `forage search` (the library, without a server) and with the corpus file itself.

Usage: test_clients.py URL FORAGE INDEX WIKI_JSONL. Prints a table; the last line is JSON.
"""

import asyncio
import json
import subprocess
import sys
import time

import aiohttp
import requests

URL, FORAGE, INDEX, WIKI = sys.argv[1:5]
TOPK = 3
COUNTS = (0, 1, 2, 3, 64)


def first_lines(contents):
    """Title and text as every one of these clients splits `contents`."""
    lines = contents.split("\n")
    return lines[0], "\n".join(lines[1:])


def search_r1(texts, scores=True):
    """Search-R1: one request per turn with the whole batch, `document.contents` of each item."""
    body = {"queries": texts, "topk": TOPK, "return_scores": scores}
    result = requests.post(URL + "/retrieve", json=body).json()["result"]
    return [[item["document"]["contents"] if scores else item["contents"] for item in items] for items in result]


def slime(texts):
    """slime: up to 256 requests in flight, one query each, without scores, `contents` at the top level."""

    async def one(session, gate, text):
        body = {"queries": [text], "topk": TOPK, "return_scores": False}
        async with gate, session.post(URL + "/retrieve", json=body) as answer:
            answer.raise_for_status()
            return [item["contents"] for item in (await answer.json())["result"][0]]

    async def every():
        gate = asyncio.Semaphore(256)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            return await asyncio.gather(*(one(session, gate, text) for text in texts))

    return list(asyncio.run(every()))


def verl(texts):
    """verl: a list of queries per call, 30 s, ten tries on 500, 502, 503, 504, timeouts and lost connections."""
    body = {"queries": texts, "topk": TOPK, "return_scores": True}
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    for attempt in range(1, 11):
        try:
            answer = requests.post(URL + "/retrieve", headers=headers, json=body, timeout=30)
            if answer.status_code not in (500, 502, 503, 504):
                answer.raise_for_status()
                result = answer.json().get("result", [])
                return [[item["document"]["contents"] for item in items] for items in result]
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout):
            pass
        time.sleep(attempt)
    raise RuntimeError("no answer after ten tries")


def skyrl(texts):
    """SkyRL: the singular `query`, one at a time over a pool of kept connections."""
    found = []
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(pool_connections=20, pool_maxsize=20))
        for text in texts:
            body = {"query": text, "topk": TOPK, "return_scores": True}
            answer = session.post(URL + "/retrieve", json=body, timeout=30)
            answer.raise_for_status()
            (items,) = answer.json()["result"]
            found.append([item["document"]["contents"] for item in items])
    return found


def torchtitan(texts):
    """torchtitan: one query per request, without scores, bare documents."""
    found = []
    for text in texts:
        body = {"queries": [text], "topk": TOPK, "return_scores": False}
        answer = requests.post(URL + "/retrieve", json=body, timeout=60)
        answer.raise_for_status()
        found.append([item["contents"] for item in answer.json()["result"][0]])
    return found


def minisearch_r1(texts):
    """minisearch-r1: `query` alone, answers under `results`."""
    answers = [requests.post(URL + "/retrieve", json={"query": text, "topk": TOPK}).json() for text in texts]
    return [[item["contents"] for item in answer["results"]] for answer in answers]


def flashrag_batch(texts, scores=False):
    """ReSearch and FlashRAG: a list of lists of documents, beside a list of lists of scores when asked for."""
    body = {"query": texts, "top_n": TOPK, "return_score": scores}
    answer = requests.post(URL + "/batch_search", json=body).json()
    if scores:
        answer, numbers = answer
        assert [len(items) for items in answer] == [len(row) for row in numbers]
        assert all(row == sorted(row, reverse=True) for row in numbers)
    return [[item["contents"] for item in items] for items in answer]


def flashrag_single(texts, scores=False):
    """ReSearch: one query, a list of documents, or documents and scores."""
    found = []
    for text in texts:
        body = {"query": text, "top_n": TOPK, "return_score": scores}
        answer = requests.post(URL + "/search", json=body).json()
        found.append([item["contents"] for item in (answer[0] if scores else answer)])
    return found


CLIENTS = {
    "Search-R1, scores": search_r1,
    "Search-R1, no scores": lambda texts: search_r1(texts, scores=False),
    "slime": slime,
    "verl": verl,
    "SkyRL": skyrl,
    "torchtitan": torchtitan,
    "minisearch-r1": minisearch_r1,
    "FlashRAG batch": flashrag_batch,
    "FlashRAG batch, scores": lambda texts: flashrag_batch(texts, scores=True),
    "FlashRAG single": flashrag_single,
    "FlashRAG single, scores": lambda texts: flashrag_single(texts, scores=True),
}


def library(text):
    """What the library finds, as ids."""
    command = [FORAGE, "search", INDEX, text, "-k", str(TOPK), "--json"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line)["id"] for line in lines]


def main():
    with open(WIKI, encoding="utf-8") as lines:
        contents = {row["id"]: row["contents"] for row in map(json.loads, lines)}
    rows = list(contents.values())
    step = len(rows) // 60
    # Questions a policy might write: titles, sentences, nonsense, markup, other scripts, nothing at all.
    texts = [" ".join(first_lines(row)[1].split()[:9]) for row in rows[::step]][:60]
    texts += ["zzzz qqqq", 'the "quoted" AND (unbalanced', "Straße 東京 😀", "<b>river</b>"]
    expected = [[contents[found] for found in library(text)] for text in texts]
    assert sum(map(len, expected)) > 100 and [] in expected

    checks, failures = 0, []
    print(f"{'client':<26}" + "".join(f"{count:>8}" for count in COUNTS) + "   queries")
    for name, client in CLIENTS.items():
        cells = []
        for count in COUNTS:
            checks += 1
            try:
                right = client(texts[:count]) == expected[:count]
                cells.append("same" if right else "WRONG")
            except Exception as error:  # every failure is a row of the table
                cells.append("FAILED")
                print(f"{name}, {count} queries: {error!r}", file=sys.stderr)
            if cells[-1] != "same":
                failures.append(f"{name}, {count}")
        print(f"{name:<26}" + "".join(f"{cell:>8}" for cell in cells))

    bad = requests.post(URL + "/retrieve", json={"queries": "not a list"})
    checks += 1
    if bad.status_code != 422 or bad.json()["detail"][0]["loc"] != ["body", "queries"]:
        failures.append("422")
    figures = {"clients": len(CLIENTS), "checks": checks, "passed": checks - len(failures), "failures": failures}
    print(json.dumps({"bench": "clients", "held": not failures, "figures": figures}))
    return 1 if failures else 0


sys.exit(main())
