"""The study of bench/study for policies that write boolean queries, with the question's keywords as a baseline."""

from study.benchmark import study

BENCHMARK = study("Boolean queries, beside twins and baselines, over ten seeds", "configs/query-writer.toml", "ranking")
