"""The `os` module of a machine without files, processes or an environment."""

import abc as _abc
import sys as _sys

import posix as _posix
from posix import *
from posix import _exit, fspath

name = "posix"
error = OSError
curdir, pardir, extsep, sep, altsep, pathsep, linesep, defpath, devnull = (
    ".", "..", ".", "/", None, ":", "\n", "/bin:/usr/bin", "/dev/null")
F_OK, R_OK, W_OK, X_OK = 0, 4, 2, 1
O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND = 0, 1, 2, 64, 128, 512, 1024
SEEK_SET, SEEK_CUR, SEEK_END = 0, 1, 2
environ = _posix.environ
supports_dir_fd = supports_effective_ids = supports_fd = supports_follow_symlinks = frozenset()


class PathLike(_abc.ABC):
    __slots__ = ()

    @_abc.abstractmethod
    def __fspath__(self):
        raise NotImplementedError

    @classmethod
    def __subclasshook__(cls, other):
        return hasattr(other, "__fspath__") if cls is PathLike else NotImplemented


class stat_result(tuple):
    pass


class terminal_size(tuple):
    @property
    def columns(self):
        return self[0]

    @property
    def lines(self):
        return self[1]


def getenv(key, default=None):
    return environ.get(key, default)


def get_terminal_size(fd=1):
    return terminal_size((80, 24))


def fsencode(filename):
    filename = fspath(filename)
    return filename.encode("utf-8", "surrogateescape") if isinstance(filename, str) else filename


def fsdecode(filename):
    filename = fspath(filename)
    return filename.decode("utf-8", "surrogateescape") if isinstance(filename, bytes) else filename


import posixpath as path
_sys.modules["os.path"] = path
