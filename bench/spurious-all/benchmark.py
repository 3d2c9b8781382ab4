"""Every family and reward of bench/spurious, whose runs are among them and are not made again."""

from spurious import run
from spurious.benchmark import spurious

BENCHMARK = spurious("Spurious rewards at small scale: every family and reward", run.FAMILIES, run.REWARDS)
