"""Plays the episodes of `forage serve env`.

`Client` and `Vector` need nothing but the standard library. The adapters stand in modules of their own, named after what they
adapt to: `gymnasium`, `trl`, `verifiers`, `slime`, `verl`, `skyrl`.
"""

from .client import Client, Session
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
from .vector import Turn, Vector
from .wire import Finish, Info, Observation, Score, Step, Task, Tool

__all__ = [
    "Capacity",
    "Client",
    "Conflict",
    "Fault",
    "Finish",
    "ForageError",
    "Info",
    "Infra",
    "Invalid",
    "Observation",
    "Refused",
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
]
