"""momentctl's answers, for the tests."""

import json
import os
import subprocess

import pytest


def momentctl(*arguments):
    """The one JSON object that a command prints."""
    program = os.environ.get("MOMENTCTL_BINARY")
    if not program:
        pytest.skip("MOMENTCTL_BINARY does not name momentctl")
    return json.loads(subprocess.check_output([program, *map(os.fspath, arguments), "--json"]))


def status(daemon):
    sockets = os.path.dirname(daemon.socket)
    return momentctl("status", "--socket-dir", sockets, "--timeout", "60")


def directory_status(daemon):
    """The one state directory of `momentctl status`."""
    (directory,) = status(daemon)["state_directories"]
    return directory
