"""The table of faults in docs/internals/testing.md names tests that exist."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]


def faults():
    text = (ROOT / "docs/internals/testing.md").read_text()
    section = text.split("## Faults that users of such systems met")[1].split("\n## ")[0]
    rows = [row.split(" | ") for row in section.splitlines() if row.startswith("| ")]
    return [row for row in rows if row[0] != "| fault"]


def test_every_fault_names_tests_and_each_exists():
    sources = {
        suffix: "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob(f"*{suffix}")))
        for suffix in (".py", ".cc")
    }
    assert len(faults()) > 20
    for fault in faults():
        functions = re.findall(r"`(test_\w+)`", fault[-1])
        cases = re.findall(r'"([^"]+)"', fault[-1])
        assert functions or cases, fault
        for function in functions:
            assert f"def {function}(" in sources[".py"], function
        for case in cases:
            assert f'TEST_CASE("{case}"' in sources[".cc"], case
