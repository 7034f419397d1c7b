"""Tests of packages that need not be there.

Without them a developer's run leaves those tests out, and says so: ctest lists the program under
"The following tests did not run". tests/run.sh does not begin without them.
"""

import importlib.metadata

import pytest

_SKIPPED = 77  # ctest's SKIP_RETURN_CODE
_missing = set()


def needs(*distributions):
    """Called by a test module for the packages (names of the package index) that it cannot do
    without."""
    missing = {name for name in distributions if not _is_installed(name)}
    if not missing:
        return
    sentence = f"not installed: {', '.join(sorted(missing))} (tests/requirements.txt)"
    _missing.update(missing)
    pytest.skip(sentence, allow_module_level=True)


def _is_installed(name):
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


class ToldToCtest:
    """A pytest plugin: a run that left something out does not look like a whole one."""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        if _missing and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = _SKIPPED
