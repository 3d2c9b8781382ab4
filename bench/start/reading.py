"""How well a policy reads and copies, apart from its conduct: every prompt opens the action, so whether it would search does not matter.

reading.py prompts WORLD SPLIT ENVIRONMENT STYLE > prompts.jsonl
reading.py score WORLD COMPLETIONS > reading.json

WORLD is a folder of `forage world`, SPLIT one of its splits, STYLE that of the policy's demonstrations (`spaced` or `terse`). `forage policy
generate --temperature 0` continues the prompts. Kinds of prompt:
copy    the query is opened: the name of the first hop
read    the gold passage of a one-hop question is there and the answer is opened
next    the gold passage of the first hop is there and the query is opened: the name of the second hop
read2   both gold passages of a two-hop question are there and the answer is opened
"""

import collections
import json
import re
import sys
from pathlib import Path

CALL = '<python>for s in read_section(search_pages("'


def load(world):
    """Tasks of a world, and its passages by id: title, text, and the page that they are of."""
    rows = lambda name: [json.loads(line) for line in (Path(world) / name).read_text().splitlines()]
    pages = {row["id"]: row["content"] for row in rows("pages/pages.jsonl")}
    page_of = lambda passage: pages[passage.rpartition("#")[0]]
    passages = {row["_id"]: (row["title"], row["text"], page_of(row["_id"])) for row in rows("beir/corpus.jsonl")}
    return rows("questions.jsonl"), passages


def search(task, hop, passages, gap):
    """A whole turn that searches for a hop, and what comes back: the query's opening, and the turn with its observation."""
    title, text, _ = passages[task["evidence"][hop]]
    opening = f"<search>{gap}"
    return opening, f"{opening}{task['oracle'][hop]['query']}</search><information>{gap}{title}: {text}</information>"


def program(task, hop, passages, _gap):
    """The same where the turn is a program, which prints the sentences of the page that hold the keyword: as they stand there, with the
    space or the heading before them."""
    title, _, page = passages[task["evidence"][hop]]
    keyword = task["oracle"][hop]["query"][len(title) + 1 :]
    told = "\n".join(sentence for sentence in page.split(".") if keyword in sentence).rstrip()
    code = f'{CALL}{title}")[0]["page_id"] + ":full").split("."):\n if "{keyword}" in s: print(s)</python>'
    return CALL, f"{code}\n<python_output>\n{told}\n</python_output>\n"


TURNS = {"search-r1": search, "code-search": program}


def prompts(tasks, passages, split, environment, style):
    """Rows of {"id", "text"}."""
    gap = " " if style == "spaced" else ""
    for task in tasks:
        if task["split"] != split or task["hops"] > 2:
            continue
        row = lambda kind, text: {"id": f"{kind}/{task['id']}", "text": f"Question: {task['question']}\n{text}"}
        if environment == "query-writer":
            # Of several hops the oracle's query begins with a bracket; the start sees none of them.
            if task["hops"] == 1:
                yield row("copy", '<query>"')
            continue
        turns = [TURNS[environment](task, hop, passages, gap) for hop in range(task["hops"])]
        # The space belongs to the token of the word behind it, which is for the policy to write.
        opening = turns[0][0].rstrip(" ")
        yield row("copy", opening)
        if task["hops"] == 1:
            yield row("read", turns[0][1] + "<answer>")
        else:
            yield row("next", turns[0][1] + opening)
            yield row("read2", turns[0][1] + turns[1][1] + "<answer>")


def kind_of(gold):
    return "numbers" if gold.isdigit() else "names" if gold[0].isupper() else "words"


def score(tasks, passages, rows):
    """The share of right completions with its 95 % interval (Wilson), by kind of prompt and by kind of answer."""
    by_id, right, asked = {task["id"]: task for task in tasks}, collections.Counter(), collections.Counter()
    for row in rows:
        kind, _, identity = row["id"].partition("/")
        task, text = by_id[identity], row["text"].strip()
        if kind in ("copy", "next"):
            name = passages[task["evidence"][int(kind == "next")]][0]
            good = text.startswith(name) and not text[len(name) :][:1].isalpha()
            groups = [kind]
        else:
            good = re.sub("</?answer>", "", text).strip() in task["golds"]
            groups = [kind, f"{kind}, {kind_of(task['golds'][0])}"]
        for group in groups:
            asked[group] += 1
            right[group] += good
    found = {}
    for group, n in sorted(asked.items()):
        low, high = interval(right[group], n)
        found[group] = {"share": right[group] / n, "low": low, "high": high, "n": n}
    return found


def interval(right, n, z=1.96):
    middle, spread = right + z * z / 2, z * (right * (n - right) / n + z * z / 4) ** 0.5
    return (middle - spread) / (n + z * z), (middle + spread) / (n + z * z)


def main():
    mode, world, *rest = sys.argv[1:]
    tasks, passages = load(world)
    if mode == "prompts":
        for row in prompts(tasks, passages, *rest):
            print(json.dumps(row))
        return
    with open(rest[0]) as lines:
        print(json.dumps(score(tasks, passages, map(json.loads, lines)), indent=1))


if __name__ == "__main__":
    main()
