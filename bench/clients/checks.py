"""The checks of a script, told as they are made."""

results = {}


def check(name, holds):
    """Notes a check. One that is made several times holds where it always did."""
    results[name] = results.get(name, True) and bool(holds)
    print(f"{'pass' if holds else 'FAIL'}  {name}", flush=True)


def refused(kind, call):
    """The error of this kind that a call ends with, if it does."""
    try:
        call()
    except kind as error:
        return error
    return None


def failed():
    """The names of the checks that did not hold."""
    return [name for name, holds in results.items() if not holds]
