"""What libmoment.so shows to the process that loads it."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

LIBRARY = os.environ.get("MOMENTD_LIBRARY", "")
PACKAGE = pathlib.Path(__file__).parents[2] / "client" / "python"

pytestmark = pytest.mark.skipif(not LIBRARY, reason="MOMENTD_LIBRARY does not name libmoment.so")


def python(script, **environment):
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(PACKAGE), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_only_moment_functions_are_exported():
    if shutil.which("nm") is None:
        pytest.skip("binutils are not installed")
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    names = {line.split()[-1].split("@")[0] for line in listing}
    assert len(names) > 10
    assert {name for name in names if not name.startswith("moment_")} == {"MOMENT_1"}


def test_symbols_are_bound_in_the_library_whatever_came_first():
    """torch carries a protobuf of its own; either order of loading works."""
    pytest.importorskip("torch")
    load = "from momentd import _library; _library.load().moment_ping(b'/tmp/nobody', 0.01)"
    for script in (f"import torch; {load}", f"{load}; import torch; torch.ones(2).sum()"):
        result = python(script)
        assert result.returncode == 0, result.stderr


def test_the_package_needs_no_torch_for_the_store():
    result = python("import sys, momentd; assert 'torch' not in sys.modules")
    assert result.returncode == 0, result.stderr


def test_a_missing_library_is_named():
    result = python("from momentd import _library; _library.load()", MOMENTD_LIBRARY="/nowhere.so")
    assert result.returncode != 0
    assert "MOMENTD_LIBRARY" in result.stderr and "/nowhere.so" in result.stderr


def test_bad_sockets_are_named_before_anything_is_asked(tmp_path):
    from momentd import Error, Store
    from momentd.store import Options

    file = tmp_path / "file"
    file.write_text("")
    for socket in ("/tmp/" + "x" * 120, "unix:/tmp/" + "x" * 120, "unix:///tmp/" + "x" * 120):
        with pytest.raises(Error, match="107"):
            Store(Options(job="job", socket=socket, connect_for_seconds=0))
    for socket in (str(file), f"unix:{file}", f"unix://{file}"):
        with pytest.raises(Error, match="not a socket"):
            Store(Options(job="job", socket=socket, connect_for_seconds=0))
    with pytest.raises(Error, match="job"):
        Store(Options(job="", socket=str(file)))
    with pytest.raises(ValueError, match="NUL"):
        Store(Options(job="a\0b", socket=str(file)))


def test_the_structs_have_the_sizes_of_the_header(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    from momentd import _library as c
    import ctypes

    structs = {
        "moment_shard_piece": c.ShardPiece,
        "moment_shard": c.Shard,
        "moment_member": c.Member,
        "moment_tensor": c.Tensor,
        "moment_open_options": c.OpenOptions,
        "moment_commit": c.Commit,
        "moment_info": c.Info,
        "moment_run": c.Run,
        "moment_group": c.Group,
        "moment_statistics": c.Statistics,
        "moment_step_options": c.StepOptions,
        "moment_buffer": c.Buffer,
        "moment_tensor_steps": c.TensorSteps,
        "moment_write_options": c.WriteOptions,
        "moment_tensor_digest": c.TensorDigest,
        "moment_pin_info": c.PinInfo,
        "moment_pin_piece": c.PinPiece,
        "moment_operation": c.Operation,
    }
    lines = []
    for name, struct in structs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, _ in struct._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
    source = tmp_path / "sizes.c"
    source.write_text(
        "#include <moment/moment.h>\n#include <stdio.h>\nint main(void) {"
        + "\n".join(lines)
        + "return 0; }"
    )
    program = tmp_path / "sizes"
    include = PACKAGE.parent / "include"
    subprocess.run(
        [compiler, "-std=c11", "-Wall", "-Werror", f"-I{include}", source, "-o", program],
        check=True,
    )
    for line in subprocess.run([program], capture_output=True, text=True).stdout.splitlines():
        name, value = line.split()
        struct, _, field = name.partition(".")
        kind = structs[struct]
        ours = getattr(kind, field).offset if field else ctypes.sizeof(kind)
        assert ours == int(value), name
