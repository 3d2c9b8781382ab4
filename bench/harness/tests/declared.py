"""What tests of declared benchmarks share: a program that pretends to be forage, and the side that runs it."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock


class Declared(unittest.TestCase):
    # The script of the program.
    program = ""

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.forage = self.folder / "forage"
        self.forage.write_text(self.program)
        self.forage.chmod(0o755)

    def side(self, declared, **changes):
        """The side of a benchmark under its parameters and these changes."""
        parameters = declared.parameters | changes
        work = mock.Mock(parameters=parameters, home=self.folder / "home", scratch=self.folder / "scratch", forage=self.forage)
        return declared.sides(work)[0][0]
