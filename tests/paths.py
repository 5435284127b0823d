"""Where things lie, for tests at whatever depth."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
#: Recorded runs of the real orchestrator: its events, its calls of the tracker, and what became of the parents.
DATA = TESTS / "data"
#: Field failures as event sequences, each with the right answer.
CASES = sorted((TESTS / "cases").glob("*.json"))
