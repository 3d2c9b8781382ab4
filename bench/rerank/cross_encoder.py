"""A BERT cross-encoder for bench/rerank, trained on the questions that the policy is trained on:
cross_encoder.py ENCODER CORPUS QUESTIONS RUN FOLDER.

It starts from the weights of the sentence encoder in ENCODER and gets a score on top of the first token. A training example is a question
with one relevant passage and some of its other candidates, the first hits of BM25 in RUN; the loss is the cross-entropy of the relevant one
under the softmax of the scores (localized contrastive estimation, Gao et al. 2021, arXiv 2101.08751). QUESTIONS is a BEIR folder without a
corpus. The sizes were set before anything was measured, and nothing is chosen on test questions.
"""

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import BertForSequenceClassification

SEED, EPOCHS, LISTS, NEGATIVES, MAX_TOKENS = 1, 3, 8, 4, 256
# Pairs of about one length that go through the model together: short ones are not padded to the longest of their batch.
TOGETHER = 8
RATE, WARM_UP = 5e-5, 0.1


def rows(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def passage(row):
    """The text of a passage as rerankers read it in forage, which is how Search-R1's reranking server writes it."""
    return f'(Title: "{row["title"]}") {row["text"]}' if row.get("title") else row["text"]


def read(corpus, questions, run):
    """Texts of passages and questions, and of each question the relevant candidates and the others."""
    passages = {row["_id"]: passage(row) for row in rows(corpus)}
    texts = {row["_id"]: row["text"] for row in rows(questions / "queries.jsonl")}
    relevant = {}
    for line in (questions / "qrels/train.tsv").read_text().splitlines()[1:]:
        question, found, grade = line.split("\t")
        if int(grade) > 0:
            relevant.setdefault(question, set()).add(found)
    candidates = {}
    for line in run.read_text().splitlines():
        question, _, found, *_ = line.split()
        candidates.setdefault(question, []).append(found)
    lists = {}
    for question, right in relevant.items():
        shown = candidates[question]
        lists[question] = [name for name in shown if name in right], [name for name in shown if name not in right]
    return passages, texts, lists


def examples(lists, draw):
    """A relevant candidate of each question and some of the others, the relevant one first; questions in a drawn order."""
    for question in draw.sample(sorted(lists), len(lists)):
        right, others = lists[question]
        if right and others:
            yield question, [draw.choice(right), *draw.choices(others, k=NEGATIVES)]


def score(model, tokenizer, pairs):
    """The score of each pair, in their order."""
    order = sorted(range(len(pairs)), key=lambda at: sum(map(len, pairs[at])))
    scores = [None] * len(pairs)
    for start in range(0, len(order), TOGETHER):
        chosen = order[start : start + TOGETHER]
        encoded = tokenizer.encode_batch([pairs[at] for at in chosen])
        ids, mask, types = (torch.tensor([getattr(row, part) for row in encoded]) for part in ("ids", "attention_mask", "type_ids"))
        found = model(input_ids=ids, attention_mask=mask, token_type_ids=types).logits.flatten()
        for at, value in zip(chosen, found):
            scores[at] = value
    return torch.stack(scores)


def main():
    encoder, corpus, questions, run, out = map(Path, sys.argv[1:])
    torch.manual_seed(SEED)
    draw = random.Random(SEED)
    model = BertForSequenceClassification.from_pretrained(encoder, num_labels=1).train()
    tokenizer = Tokenizer.from_file(str(encoder / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()
    passages, texts, lists = read(corpus, questions, run)
    epochs = [example for _ in range(EPOCHS) for example in examples(lists, draw)]
    batches = [epochs[start : start + LISTS] for start in range(0, len(epochs), LISTS)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    warm = max(1, int(WARM_UP * len(batches)))
    rate = lambda step: (step + 1) / warm if step < warm else (len(batches) - step) / max(1, len(batches) - warm)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    total = 0.0
    for step, batch in enumerate(batches, 1):
        pairs = [(texts[question], passages[name]) for question, names in batch for name in names]
        scores = score(model, tokenizer, pairs).view(len(batch), 1 + NEGATIVES)
        loss = torch.nn.functional.cross_entropy(scores, torch.zeros(len(batch), dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        total += loss.item()
        if step % 20 == 0 or step == len(batches):
            print(f"step {step} of {len(batches)}, mean loss {total / step:.4f}", file=sys.stderr, flush=True)
    partial = out.with_name(f"{out.name}.partial")
    model.save_pretrained(partial)
    (partial / "tokenizer.json").write_bytes((encoder / "tokenizer.json").read_bytes())
    partial.rename(out)


main()
