"""The credits of turns of bench/methods on questions of two and three hops, where a search has others after it."""

from methods.benchmark import comparison

TASK = ["data.world.difficulty.hops=[0.0,0.6,0.4,0.0]", "environment.settings.max_generations=4",
        "environment.settings.max_episode_tokens=480", "engine.context_tokens=480"]
METHODS = ["dapo", "discounted_turns", "reward_to_go", "gigpo", "information_gain", "process", "process-bounded", "step_potential",
           "trees"]

BENCHMARK = comparison("methods-hops", "Credits of turns on questions of two and three hops, side by side", TASK, METHODS)
