"""Which manylinux platform a set of objects fits (PEP 600): the oldest that has their symbols."""

from typing import NamedTuple, Tuple


class Platform(NamedTuple):
    """The newest symbol versions that systems of a glibc are sure to have."""

    glibc: Tuple[int, ...]
    glibcxx: Tuple[int, ...]
    cxxabi: Tuple[int, ...]

    def has(self, versions):
        return all(
            versions.get(family, (0,)) <= limit
            for family, limit in (
                ("GLIBC", self.glibc),
                ("GLIBCXX", self.glibcxx),
                ("CXXABI", self.cxxabi),
            )
        )


# Those of auditwheel's policy; the first two cover RHEL 9 and Ubuntu 22.04.
PLATFORMS = (
    Platform((2, 34), (3, 4, 29), (1, 3, 13)),
    Platform((2, 35), (3, 4, 30), (1, 3, 13)),
    Platform((2, 36), (3, 4, 30), (1, 3, 13)),
    Platform((2, 38), (3, 4, 30), (1, 3, 13)),
    Platform((2, 39), (3, 4, 33), (1, 3, 15)),
    Platform((2, 41), (3, 4, 33), (1, 3, 15)),
)


def oldest(versions_by_object):
    """The oldest platform with all symbols that the objects need, given {object: versions}."""
    for platform in PLATFORMS:
        if all(platform.has(versions) for versions in versions_by_object.values()):
            return platform
    newest = PLATFORMS[-1]
    beyond = [name for name, versions in versions_by_object.items() if not newest.has(versions)]
    raise RuntimeError(f"no known manylinux platform has the symbols of: {', '.join(beyond)}")


def tag(platform, machine):
    return "manylinux_{}_{}_{}".format(*platform.glibc, machine)
