"""The package says that it is typed (py.typed): what a type checker makes of that."""

import inspect
import os
import pathlib
import subprocess
import sys
import typing

import pytest
from needs import needs

needs("mypy", "torch")

import momentd  # noqa: E402
import momentd.daemon  # noqa: E402
import momentd.pin  # noqa: E402
import momentd.store  # noqa: E402
import momentd.torch  # noqa: E402

_HERE = pathlib.Path(__file__).parent
_PACKAGE = pathlib.Path(momentd.__file__).parents[1]


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Runs mypy with these arguments; returns what it says. Most of its time goes into reading
    torch, which is kept for the next run."""
    fixed = ["--python-version", "3.10", "--cache-dir", tmp_path_factory.mktemp("mypy")]

    def run(*arguments):
        result = subprocess.run(
            [sys.executable, "-m", "mypy", *map(os.fspath, [*fixed, *arguments])],
            env={**os.environ, "MYPYPATH": os.fspath(_PACKAGE)},
            capture_output=True,
            text=True,
        )
        assert result.returncode in (0, 1), result.stderr
        return result.stdout

    return run


def test_a_strictly_checked_trainer_finds_nothing_untyped(mypy):
    said = mypy("--strict", "--follow-imports=silent", _HERE / "typed_trainer.py")
    assert said.startswith("Success"), said


def test_the_package_agrees_with_its_own_annotations(mypy):
    said = mypy("-p", "momentd")
    assert said.startswith("Success"), said


def test_mypy_sees_what_the_package_says(mypy, tmp_path):
    """That the two above say nothing is no accident."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import momentd.torch\n"
        "def flush(optimizer: momentd.torch.AdamW) -> str:\n"
        "    return optimizer.flush()\n"
    )
    assert 'got "int", expected "str"' in mypy("--strict", "--follow-imports=silent", wrong)


def public_functions():
    modules = (momentd, momentd.daemon, momentd.errors, momentd.pin, momentd.store, momentd.torch)
    names = {
        (module, name)
        for module in modules
        for name in getattr(module, "__all__", vars(module))
        if not name.startswith("_")
    }
    for module, name in sorted(names, key=lambda entry: (entry[0].__name__, entry[1])):
        value = getattr(module, name)
        if not getattr(value, "__module__", "").startswith("momentd"):
            continue
        if inspect.isfunction(value):
            yield f"{module.__name__}.{name}", value
        elif inspect.isclass(value):
            yield from methods(f"{module.__name__}.{name}", value)


def methods(name, cls):
    """Those of the class and of its bases in this package; a property is its getter."""
    for attribute in dir(cls):
        if attribute.startswith("_") and attribute != "__init__":
            continue
        value = inspect.getattr_static(cls, attribute)
        value = value.fget if isinstance(value, property) else value
        value = getattr(value, "__func__", value)
        # torch's decorators keep the function that they wrap.
        value = inspect.unwrap(value) if callable(value) else value
        if inspect.isfunction(value) and value.__module__.startswith("momentd"):
            yield f"{name}.{attribute}", value


@pytest.mark.parametrize("name, function", list(public_functions()))
def test_every_argument_and_result_is_annotated(name, function):
    signature = inspect.signature(function)
    arguments = [argument for argument in signature.parameters if argument != "self"]
    missing = [argument for argument in arguments if argument not in function.__annotations__]
    assert not missing, missing
    assert "return" in function.__annotations__
    typing.get_type_hints(function)
