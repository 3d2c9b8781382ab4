"""Demonstrations of a writer whose boolean queries ask for too much, as prompts and completions for `forage sft`.

Usage: demonstrate.py WORLD_FOLDER STRICT_SHARE > demonstrations.jsonl

It knows nothing but the question. STRICT_SHARE of the questions it turns into all of their content words joined by AND, which
finds nothing as soon as the passage says one of them in another way; the others into the same words without an operator.
Every second query comes with a sentence of reasoning. Which question gets what is drawn by its id.
"""

import json
import random
import re
import sys

# As in a search engine's short lists, with the words questions begin with.
STOP_WORDS = set(
    "a an and are as at be by did do does for from had has have how in into is it its of on or that the their they this to was"
    " were what when where which who whom whose why will with".split()
)


def written(question, strict_share, draw):
    words = [word for word in re.findall(r"[\w']+", question) if word.lower() not in STOP_WORDS]
    if draw.random() < strict_share:
        query, thought = " AND ".join(words), "All words of the question have to be there, so AND joins them."
    else:
        query, thought = " ".join(words), "The words of the question are enough."
    reasoning = f"<reasoning>{thought}</reasoning>" if draw.random() < 0.5 else ""
    # A space before the query, so that words have the tokens that they have in passages.
    return f"{reasoning}<query> {query}</query>"


def main():
    folder, strict_share = sys.argv[1], float(sys.argv[2])
    for line in open(f"{folder}/search-r1/train.jsonl"):
        row = json.loads(line)
        completion = written(row["question"], strict_share, random.Random(row["id"]))
        # configs/prompts/short.txt
        print(json.dumps({"prompt": f"Question: {row['question']}\n", "completion": completion}))


main()
