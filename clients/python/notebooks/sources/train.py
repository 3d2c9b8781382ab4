# %% [markdown]
# # Train the tiny agent
#
# `forage.quickstart` does the whole job from Python: it generates a world, trains the small policy that comes with the program to
# search in it, trains a control beside it that any search pays, and judges both on questions that training never asked. Twenty
# steps at six times the rate stand in here for the two hundred of
# [the quickstart](../../../docs/quickstart.md).
#
# The notebook takes about half a minute on two cores.

# %%
from pathlib import Path

import forage

out = Path("runs/train")
run = forage.quickstart(
    out,
    settings={
        "grpo.steps": 20,
        "grpo.evaluate_every": 10,
        "grpo.update.optimizer.learning_rate": 5e-5,
        "data.test_questions": 200,
        "evaluation.resamples": 2000,
    },
)
run

# %% [markdown]
# ## The verdict
#
# What the program says in words at the end of a quickstart is in `verdict.json`, with every figure behind it. Exact match is that of one
# greedy episode for each held-out question; the interval is over questions.

# %%
verdict = run.verdict
low, high = verdict["gain_interval"]
print(f"exact match {verdict['start']:.3f} before, {verdict['trained']:.3f} after training")
print(f"gain {verdict['gain']:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}, {verdict['n']} questions")
print(f"the control gained {verdict['control_gain']:+.3f}")

# %% [markdown]
# The interval lies above 0: the policy answers more of these questions than before.

# %%
assert low > 0, "the gain is not shown; give it more steps"

# %% [markdown]
# ## The two runs
#
# A quickstart is made of two runs from the same start, on the same questions. Their metrics are rows, one for each step. A policy that
# is paid for right answers searches more and more often in an episode.

# %%
print("step  reward        searches")
print("      run  control  run  control")
trained, control = (run.parts[name].metrics for name in ("trained", "control"))
for ours, theirs in list(zip(trained, control, strict=True))[::5]:
    shown = [row[name] for name in ("reward/mean", "search/calls_mean") for row in (ours, theirs)]
    print(f"{ours['step']:4}  " + "  ".join(f"{value:.2f}" for value in shown))

# %% [markdown]
# `runs/train/report.html` is the whole of it on one page, and `runs/train/policy` the trained policy, as a Hugging Face folder.
