"""The losses of the ratio of bench/methods, with four optimizer steps a batch: with one step all ratios are near 1."""

from methods.benchmark import comparison

TASK = ["grpo.update.minibatches=4"]
METHODS = ["dapo", "gspo", "sspo", "luspo", "gmpo", "cispo", "sapo", "vespo"]

BENCHMARK = comparison("methods-ratios", "Losses of the ratio with four optimizer steps a batch, side by side", TASK, METHODS)
