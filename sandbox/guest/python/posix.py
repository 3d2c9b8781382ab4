"""What is left of an operating system without one."""


def _denied(name):
    def call(*args, **kwargs):
        raise PermissionError(1, f"os.{name}() is not available in the sandbox")
    call.__name__ = call.__qualname__ = name
    return call


_DENIED = (
    "abort", "access", "chdir", "chmod", "chown", "close", "dup", "dup2", "execl", "execle", "execlp", "execv", "execve",
    "execvp", "fork", "fstat", "fsync", "ftruncate", "getgid", "getuid", "kill", "link", "listdir", "lstat", "makedirs",
    "mkdir", "mkfifo", "open", "pipe", "popen", "putenv", "read", "readlink", "remove", "removedirs", "rename", "replace",
    "rmdir", "scandir", "sendfile", "setuid", "spawnl", "spawnv", "startfile", "stat", "statvfs", "symlink", "system",
    "truncate", "umask", "unlink", "unsetenv", "utime", "wait", "waitpid", "walk", "write", "_exit",
)
for _name in _DENIED:
    globals()[_name] = _denied(_name)
del _name

environ = {}


def getcwd():
    return "/"


def getpid():
    return 1


def getppid():
    return 0


def cpu_count():
    return 1


def urandom(size, /):
    import _forage_host
    return _forage_host.random(size)


def fspath(path):
    if isinstance(path, (str, bytes)):
        return path
    try:
        found = type(path).__fspath__(path)
    except AttributeError:
        raise TypeError(
            f"expected str, bytes or os.PathLike object, not {type(path).__name__}"
        ) from None
    if isinstance(found, (str, bytes)):
        return found
    raise TypeError(f"expected {type(path).__name__}.__fspath__() to return str or bytes, not {type(found).__name__}")


def register_at_fork(**callbacks):
    pass
