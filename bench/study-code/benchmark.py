"""The study of bench/study for policies that write programs over pages."""

from study.benchmark import study

BENCHMARK = study("Programs over pages, beside twins and baselines, over ten seeds", "configs/quickstart-code.toml", "answer")
