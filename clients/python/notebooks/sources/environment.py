# %% [markdown]
# # Plug an environment written in Python into `forage train`
#
# An environment is a class with `reset` and `step`; `forage train` starts it as a process, and asks it over a socket. This one searches
# through an index that another process serves, and pays for a step on the way as well as for the answer.
#
# The notebook takes about a quarter of a minute on two cores.

# %%
import atexit
import re
import subprocess
import sys
from pathlib import Path

import forage


def run(*words):
    """Runs the program and returns what it printed."""
    command = [forage.program(), *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


# %% [markdown]
# ## Something to search
#
# A generated encyclopedia with questions, indexed and served. Your own corpus takes its place.

# %%
run("world", "--pages", "1000", "--questions", "200", "--hops", "0.7,0.3,0,0", "--paraphrase", "0.25", "--out", "world")
run("index", "build", "--corpus", "world/beir", "--format", "beir", "--out", "index")
serving = [forage.program(), "serve", "retriever", "index", "--addr", "127.0.0.1:0", "--drain-seconds", "0"]
server = subprocess.Popen(serving, stderr=subprocess.PIPE, text=True)
atexit.register(server.terminate)
address = next(found[1] for line in server.stderr if (found := re.match(r"listening on (http:[^,]*),", line)))
print([passage.title for passage in forage.Retriever(address).search("mentor", k=3)])

# %% [markdown]
# ## The environment
#
# It lives in a file of its own, since another process runs it. `questions` reads the splits of the world; `step` answers a search with
# the best passage, and pays a quarter for the first one that holds an accepted answer.

# %%
source = f'''import json
import re

import forage

RETRIEVER = forage.Retriever("{address}")


class Agent(forage.Environment):
    """Questions to an encyclopedia."""

    id = "mine/agent-v0"
    max_turns = 3
    max_turn_tokens = 24
    max_episode_tokens = 320
    stop = ("</search>", "</answer>")

    @classmethod
    def questions(cls, split, count, seed):
        with open("world/questions.jsonl") as lines:
            rows = [json.loads(line) for line in lines]
        return [forage.Question.read(row) for row in rows if row["split"] == split][:count]

    def reset(self, question, seed):
        self.golds, self.paid = question.golds, False
        return f"Question: {{question.text}}\\n"

    def step(self, turn):
        if found := re.search(r"<answer>(.*)</answer>", turn, re.DOTALL):
            answer = found[1].strip()
            return forage.Reply.answer(answer, reward=float(answer in self.golds))
        if not (found := re.search(r"<search>(.*)</search>", turn, re.DOTALL)):
            return forage.Reply.invalid("neither <search> nor <answer>", done=True)
        query = found[1].strip()
        hits = RETRIEVER.search(query, k=1)
        text = "".join(f"{{hit.title}}: {{hit.text}}\\n" for hit in hits)
        pays = not self.paid and any(gold in text for gold in self.golds)
        self.paid |= pays
        return forage.Reply.call(
            "search",
            f"<information> {{text}}</information>",
            reward=0.25 if pays else 0.0,
            queries=[query],
            shown=[hit.id for hit in hits],
        )


if __name__ == "__main__":
    forage.serve(Agent)
'''
with open("agent.py", "w") as file:
    file.write(source)

# %% [markdown]
# Nothing is needed to try it: an instance is an episode, and you are the policy.

# %%
sys.path.insert(0, ".")
from agent import Agent

question = Agent.questions("train", 1, 0)[0]
episode = Agent()
print(episode.reset(question, seed=1))
print(episode.step(f"<search> {question.text}</search>"))
print(episode.step(f"<answer> {question.golds[0]}</answer>"))

# %% [markdown]
# ## A config
#
# `id = "external"` is any environment in another process. The reward `return` adds up what the class pays; `em`, which compares answers
# as SQuAD does, is computed with weight 0, for the log and for the comparison at the end.

# %%
Path("agent.toml").write_text(
    """seed = 1

[policy]
checkpoint = "builtin:quickstart"

[data]
train_questions = 200
dev_questions = 0
test_questions = 100

[data.own]
seed = 0

[environment]
id = "external"

[reward]
return = 1.0
em = { weight = 0.0 }

[engine]
cache_mib = 128
context_tokens = 320

[grpo]
steps = 20

[grpo.update.optimizer]
learning_rate = 5e-5
warmup_steps = 5
weight_decay = 0.0

[evaluation]
resamples = 2000
"""
)
COMMAND = ["--env-command", f"'{sys.executable}' agent.py"]

# %% [markdown]
# The oracle answers right away: whatever it does not earn, no policy can.

# %%
print(run("eval", "agent.toml", *COMMAND, "--policy", "oracle", "--limit", "20"))

# %% [markdown]
# ## Train, and compare

# %%
run("eval", "agent.toml", *COMMAND, "--out", "before.jsonl")
run("train", "agent.toml", *COMMAND, "--out", "runs/environment")
run("eval", "agent.toml", *COMMAND, "--policy", "runs/environment/policy", "--out", "after.jsonl")
compared = run("compare", "before.jsonl", "after.jsonl")
print(compared)

# %%
assert "B beats A" in compared, "no difference is shown; give it more steps"
server.terminate()

# %% [markdown]
# The reward's parts by step, `return` among them, are in the metrics of the run; `read_run.ipynb` reads them.
