# %% [markdown]
# # Read a run
#
# A run is a folder. `forage.Run` reads it, also while it is being written: its config, a row of metrics for each step, its alarms, and
# where its policy is. First a run to read, of a few seconds.
#
# The notebook takes less than ten seconds on two cores.

# %%
import json
import subprocess
from pathlib import Path

import forage

Path("run.toml").write_text(
    """seed = 1

[policy]
checkpoint = "builtin:quickstart"

[data]
train_questions = 200
dev_questions = 20
test_questions = 50

[data.world]
pages = 300
seed = 5

[data.world.difficulty]
hops = [0.7, 0.3, 0.0, 0.0]

[environment]
id = "search-r1"

[environment.settings]
prompt = "short"
top_k = 1
max_generations = 3
max_turn_tokens = 24
max_episode_tokens = 320
on_invalid = "end"

[environment.settings.observation]
limit_tokens = 200
passage = "{title}: {text}\\n"
opening = "<information> "
closing = "</information>"

[reward]
em = 1.0

[engine]
cache_mib = 128

[grpo]
steps = 12
evaluate_every = 4

[grpo.update.optimizer]
learning_rate = 5e-5
warmup_steps = 5
"""
)
subprocess.run([forage.program(), "train", "run.toml", "--out", "runs/read"], check=True, capture_output=True)
run = forage.Run("runs/read")
run

# %% [markdown]
# ## Config and metrics
#
# The config is the resolved one: every key, also those that nobody wrote.

# %%
print(run.config["environment"]["id"], run.config["grpo"]["prompts_per_step"], "questions a step")
print("questions", {split: digest[:12] for split, digest in run.config["data"]["digests"].items()})

# %% [markdown]
# A metric has the name that [the table of metrics](../../../docs/metrics.md) explains. Not every
# step has every metric: validation comes every fourth step here.

# %%
for row in run.metrics:
    validated = f"  validation {row['val/em']:.2f}" if "val/em" in row else ""
    print(f"{row['step']:3}  reward {row['reward/mean']:.3f}  searches {row['search/calls_mean']:.2f}{validated}")

# %% [markdown]
# The same as a table, with pandas, one column for each metric:

# %%
frame = run.frame()
frame[["step", "reward/mean", "search/calls_mean", "policy/entropy", "group/zero_std_frac"]].describe().round(3)

# %% [markdown]
# ## Alarms
#
# What the sentinel raised, each with the number that it judged. A healthy run has none.

# %%
for alarm in run.alarms:
    print(alarm["kind"], alarm["message"])
print(len(run.alarms), "alarms")

# %% [markdown]
# ## Episodes
#
# A run keeps the first group of every tenth step, an evaluation all of its episodes, as lines of JSON: figures first, then the episode
# turn by turn. `rollouts` holds the members of a group, whose rewards became advantages.

# %%
records = [json.loads(line) for line in (run.folder / "rollouts/step-000000.jsonl").read_text().splitlines()]
print(records[0]["episode"]["task"]["question"])
for record in records:
    actions = [turn["kind"]["kind"] for turn in record["episode"]["turns"]]
    print(record["reward"], record["searches"], "searches", actions, repr(record["answer"]))

# %% [markdown]
# One of them in full:

# %%
best = max(records, key=lambda record: record["reward"])
print(best["episode"]["prompt"], end="")
for turn in best["episode"]["turns"]:
    print(turn["policy"] + turn["observation"])

# %% [markdown]
# `forage runs report runs/read` writes all of this on a page, and `--json` prints it for other programs.

# %%
report = subprocess.run(
    [forage.program(), "runs", "report", "runs/read", "--json"], check=True, capture_output=True, text=True
)
print(sorted(json.loads(report.stdout)))
