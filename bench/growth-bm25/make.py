"""Makes passages of 100 words and queries for them, of any number, always the same ones: make.py OUT PASSAGES PARTS.

A passage has 63 words of a common vocabulary by Zipf's law, Lucene's 33 stop words foremost, 34 of its topic's own words, and three
names by Zipf's law out of 16 million, so that the vocabulary grows with the corpus as that of real text does (Heaps). Topics are of unequal
sizes. A passage depends on its number alone: a smaller corpus is the beginning of a larger one. Written are

    corpus/0.jsonl ...  {"id", "contents": "\\"Title\\"\\ntext"}, the form of Search-R1 and Anserini, in PARTS files, each by a process
    more.jsonl          the next 10,000 passages
    queries.jsonl       {"_id", "text"}: 4 to 10 words of one passage
    cold.jsonl          others of them
    boolean.json        queries in the syntax of the boolean mode, by kind
"""

import hashlib
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

SEED = "passages 1"
WORDS, COMMON, TOPICAL, NAMES = 100, 63, 34, 3
# Passages that come of one stream of bytes: whoever wants one of them makes all.
CHUNK = 1000
TOPICS, TOPIC_WORDS = 5000, 60
QUERIES, COLD, BOOLEAN, MORE = 500, 200, 20, 10
STOP_WORDS = (
    "the of and in to a is for was that as with by it on are be this at not or an their there if into no such they these will then but"
).split()
SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in "aeiou"]
PAIRS = [one + other for other in SYLLABLES for one in SYLLABLES]


def word(number, syllables):
    """The word of a number, another one for each below 90 to the power of the syllables."""
    made = []
    for _ in range(syllables):
        number, syllable = divmod(number, len(SYLLABLES))
        made.append(SYLLABLES[syllable])
    return "".join(made)


def zipf(words, slots):
    """A table of so many slots in which each word has a share by its rank: a random slot is a random word."""
    weights = [1 / (rank + 2.7) for rank in range(len(words))]
    total, reached, rank, table = sum(weights), weights[0], 0, []
    for slot in range(slots):
        while reached < total * (slot + 0.5) / slots:
            rank += 1
            reached += weights[rank]
        table.append(words[rank])
    return table


class Draw:
    """A stream of numbers that is the same in every Python."""

    def __init__(self, name, numbers):
        self.bytes, self.at = hashlib.shake_128(f"{SEED} {name}".encode()).digest(4 * numbers), 0

    def below(self, bound):
        found = int.from_bytes(self.bytes[self.at : self.at + 4], "little")
        self.at += 4
        return found * bound >> 32

    def sample(self, items, count):
        items = list(items)
        for at in range(count):
            other = at + self.below(len(items) - at)
            items[at], items[other] = items[other], items[at]
        return items[:count]


class Passages:
    def __init__(self):
        vocabulary = STOP_WORDS + [word(number, 3) for number in range(40_000 - len(STOP_WORDS))]
        self.frequent = vocabulary[len(STOP_WORDS) : len(STOP_WORDS) + 100]
        self.common = zipf(vocabulary, 1 << 16)
        self.topics, self.ranks = [None] * TOPICS, zipf(range(TOPIC_WORDS), 256)

    def topic(self, number):
        """The table of a topic's words, which lie anywhere in half a million: the rarer ones seldom in several topics."""
        if self.topics[number] is None:
            draw = Draw(f"topic {number}", 2 * TOPIC_WORDS)
            least = [500 << draw.below(10) for _ in range(TOPIC_WORDS)]
            words = [word(number + draw.below(number), 3) for number in least]
            self.topics[number] = [words[rank] for rank in self.ranks]
        return self.topics[number]

    def chunk(self, number):
        """(title, words) of CHUNK passages."""
        sizes = [2 * COMMON, TOPICAL, 4 * NAMES, 2]
        stream = hashlib.shake_128(f"{SEED} {number}".encode()).digest(sum(sizes) * CHUNK)
        at = [CHUNK * sum(sizes[:part]) for part in range(len(sizes) + 1)]
        common = memoryview(stream)[at[0] : at[1]].cast("H")
        topical = memoryview(stream)[at[1] : at[2]]
        names = memoryview(stream)[at[2] : at[3]].cast("I")
        topics = memoryview(stream)[at[3] : at[4]].cast("H")
        for passage in range(CHUNK):
            # Low numbers are large topics.
            topic = self.topic(topics[passage] ** 2 * TOPICS >> 32)
            rest = [*map(self.common.__getitem__, common[passage * COMMON : (passage + 1) * COMMON])]
            rest += [self.name(drawn) for drawn in names[passage * NAMES : (passage + 1) * NAMES]]
            words = [""] * WORDS
            words[0::3] = map(topic.__getitem__, topical[passage * TOPICAL : (passage + 1) * TOPICAL])
            words[1::3], words[2::3] = rest[:33], rest[33:]
            yield f"{topic[0]} {rest[-1]}", words

    def name(self, drawn):
        """One of 16 million, those of twice the rank half as often."""
        power = 8 + (drawn >> 28)
        after, before = divmod(1 << power | drawn & (1 << power) - 1, len(PAIRS))
        return PAIRS[before] + PAIRS[after]

    def words(self, number):
        """The words of one passage; all of its chunk are made for it."""
        for at, (_, words) in enumerate(self.chunk(number // CHUNK)):
            if at == number % CHUNK:
                return words

    def write(self, path, chunks):
        with open(path, "w", encoding="ascii") as out:
            for chunk in chunks:
                rows = enumerate(self.chunk(chunk), chunk * CHUNK)
                out.write("".join(f'{{"id": "{at}", "contents": "\\"{title}\\"\\n{" ".join(words)}"}}\n' for at, (title, words) in rows))

    def query(self, draw, passages):
        return " ".join(draw.sample(self.words(draw.below(passages)), 4 + draw.below(7)))

    def boolean(self, draw, passages):
        """A query of each kind that is hard: for its phrase, for what it leaves out, for how much it matches."""
        words = self.words(draw.below(passages))
        of = [found for found in words if found not in STOP_WORDS]
        # A stop word between two words has a place of its own, and no phrase of the two is in the text.
        pairs = [pair for pair in zip(words, words[1:]) if not {*pair} & {*STOP_WORDS}]
        some, other = draw.sample(of, 2), draw.sample(self.frequent, 2)
        return {
            "phrase": f'"{" ".join(pairs[draw.below(len(pairs))])}"',
            "rare": f'"{" ".join(other)}"',
            "mixed": f"({some[0]} OR {other[0]}) AND {some[1]} AND NOT {other[1]}",
            "broad": " OR ".join(draw.sample(self.frequent, 6)),
        }


def part(path, begin, end):
    Passages().write(path, range(begin, end))


def main():
    out, passages, parts = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chunks, rest = divmod(passages, CHUNK)
    if rest:
        sys.exit(f"{passages} passages are not whole chunks of {CHUNK}")
    (out / "corpus").mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(parts) as pool:
        ends = [chunks * number // parts for number in range(parts + 1)]
        jobs = [pool.submit(part, out / f"corpus/{number}.jsonl", *ends[number : number + 2]) for number in range(parts)]
        for job in jobs:
            job.result()
    made = Passages()
    made.write(out / "more.jsonl", range(chunks, chunks + MORE))
    for name, count in (("queries", QUERIES), ("cold", COLD)):
        draw = Draw(name, 16 * count)
        rows = ({"_id": f"q{number}", "text": made.query(draw, passages)} for number in range(count))
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    draw = Draw("boolean", 16 * BOOLEAN)
    kinds = [made.boolean(draw, passages) for _ in range(BOOLEAN)]
    (out / "boolean.json").write_text(json.dumps({kind: [row[kind] for row in kinds] for kind in kinds[0]}))


if __name__ == "__main__":
    main()
