"""Makes our library and programs independent of the system's copies of what they need.

Beside them come the shared objects that not every Linux has, each under a soname of its own, found
by a path relative to who needs it. Every symbol that these objects offer is renamed, `name` to
`name.momentd` (which demanglers understand), in all of them alike: a process may hold other builds
of gRPC, Protocol Buffers or Abseil, in any scope and loaded in any order, and neither sees the
other's symbols. A local scope (RTLD_LOCAL) alone would not do that: the global scope is searched
first, and unique symbols (STB_GNU_UNIQUE) are one in a process, whatever their scope.
"""

import shutil

from elf import BASE, defined, dependencies, needed, run

SUFFIX = ".momentd"
LIBRARIES = "lib"
PROGRAMS = "bin"

# Made by the linker in each object, or where a program begins.
_OF_EACH_OBJECT = frozenset(
    {
        "_IO_stdin_used",
        "__bss_start",
        "__data_start",
        "_edata",
        "_end",
        "_fini",
        "_init",
        "_start",
        "data_start",
        "main",
    }
)


def bundled_soname(soname):
    """libprotobuf.so.32 -> libprotobuf-momentd.so.32: no object of the system answers to it."""
    stem, dot, rest = soname.partition(".so")
    return f"{stem}-momentd{dot}{rest}"


def is_public(symbol):
    return symbol.startswith("moment_")


class Bundle:
    """A folder with `lib/` and `bin/`, complete but for what BASE names.

    `origins` is {file in lib/: where it came from}, of the system's shared objects.
    """

    def __init__(self, folder, library, programs):
        self._libraries = folder / LIBRARIES
        self._programs = folder / PROGRAMS
        self.origins = {}
        self._base = {}
        self._ours = [self._libraries / "libmoment.so.1"]
        self._ours += [self._programs / program.name for program in programs]
        self._libraries.mkdir(parents=True)
        self._programs.mkdir()
        for source, target in zip([library, *programs], self._ours):
            self._copy_ours(source, target)
            self._copy_dependencies(source)

    def _copy_ours(self, source, target):
        """Without what tells of the folder it was built in: debug information and the build id,
        which is a digest of it, too."""
        run("strip", "--remove-section=.note.gnu.build-id", "-o", target, source)
        target.chmod(0o755)

    def _copy_dependencies(self, source):
        for soname, file in dependencies(source).items():
            if soname in BASE:
                self._base[soname] = file
                continue
            target = self._libraries / bundled_soname(soname)
            if target.name not in self.origins:
                shutil.copyfile(file, target)
                target.chmod(0o755)
                self.origins[target.name] = file

    def objects(self):
        return sorted([*self._ours, *(self._libraries / name for name in self.origins)])

    def isolate(self, patchelf):
        """Sets sonames, search paths and symbol names, then has the loader bind every symbol."""
        names = self._libraries.parent / "symbols"
        names.write_text("".join(f"{name} {name}{SUFFIX}\n" for name in self._to_rename()))
        for path in self.objects():
            self._patch(patchelf, path, names)
        names.unlink()
        self._check()

    def _to_rename(self):
        of_system = set().union(*(defined(file) for file in self._base.values()))
        ours = set().union(*(defined(path) for path in self.objects()))
        kept = of_system | _OF_EACH_OBJECT
        return sorted(name for name in ours - kept if not is_public(name))

    def _patch(self, patchelf, path, names):
        to_libraries = "$ORIGIN" if path.parent == self._libraries else f"$ORIGIN/../{LIBRARIES}"
        # DT_RPATH: LD_LIBRARY_PATH must not come before it.
        command = [patchelf, "--force-rpath", "--set-rpath", to_libraries]
        command += ["--rename-dynamic-symbols", names]
        for soname in needed(path):
            if soname not in BASE:
                command += ["--replace-needed", soname, bundled_soname(soname)]
        if path.name in self.origins:
            command += ["--set-soname", path.name]
        run(*command, path)

    def _check(self):
        folder = str(self._libraries.parent)
        for path in self._ours:
            for soname, file in dependencies(path).items():
                if soname not in BASE and not file.startswith(folder):
                    raise RuntimeError(f"{path}: {soname} comes from {file}")
