"""The forage program from Python, and what plays with it.

- `command` runs a command of the program, `quickstart` its quickstart, `serving` one of its servers; `grade` has it grade answers, and
  `program` says where it is.
- `Run` reads the folder of a run, `forage.track` follows it into Weights & Biases or trackio.
- `Environment`, `Question`, `Reply` and `serve`: an environment of one's own, for `forage train` and `forage eval`.
- `Client` and `Vector` play the episodes of `forage serve env`, `Retriever` searches in what `forage serve retriever` serves.

All of this needs nothing but the standard library. The adapters stand in modules of their own, named after what they adapt to:
`gymnasium`, `trl`, `verifiers`, `slime`, `verl`, `skyrl`; that to verifiers 0.4 is a package beside this one, `forage_verifiers`.
"""

from importlib import metadata as _metadata

from .client import Client, Session
from .environment import Environment, Question, Reply
from .errors import (
    Capacity,
    Conflict,
    Fault,
    ForageError,
    Infra,
    Invalid,
    Refused,
    SessionLost,
    Stopping,
    Unauthorized,
    Unreachable,
)
from .grading import grade, grade_many
from .launch import command, program, quickstart, serving
from .retriever import Passage, Retriever
from .run import Run
from .server import serve
from .vector import Turn, Vector
from .wire import Finish, Info, Observation, Score, Step, Task, Tool

try:
    __version__ = _metadata.version("forage")
except _metadata.PackageNotFoundError:
    # Sources that nobody has installed.
    __version__ = "unknown"

__all__ = [
    "Capacity",
    "Client",
    "Conflict",
    "Environment",
    "Fault",
    "Finish",
    "ForageError",
    "Info",
    "Infra",
    "Invalid",
    "Observation",
    "Passage",
    "Question",
    "Refused",
    "Reply",
    "Retriever",
    "Run",
    "Score",
    "Session",
    "SessionLost",
    "Step",
    "Stopping",
    "Task",
    "Tool",
    "Turn",
    "Unauthorized",
    "Unreachable",
    "Vector",
    "__version__",
    "command",
    "grade",
    "grade_many",
    "program",
    "quickstart",
    "serve",
    "serving",
]
