"""The .dist-info folder of the wheel, from client/python/pyproject.toml."""

import tomllib

# Ours, and that of the bundled objects (licenses/THIRD_PARTY.txt).
_LICENCES = "Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND MIT"


def read_project(pyproject):
    return tomllib.loads(pyproject.read_text())["project"]


def metadata(project, readme, licence_files):
    """METADATA, version 2.4 (https://packaging.python.org/specifications/core-metadata)."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        f"License-Expression: {_LICENCES}",
        *(f"License-File: {name}" for name in licence_files),
        *(f"Classifier: {classifier}" for classifier in project.get("classifiers", ())),
        *(f"Requires-Dist: {requirement}" for requirement in project.get("dependencies", ())),
    ]
    for extra, requirements in project.get("optional-dependencies", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {item}; extra == "{extra}"' for item in requirements]
    lines += ["Description-Content-Type: text/markdown", "", readme]
    return "\n".join(lines)


def wheel_file(tag):
    return (
        "Wheel-Version: 1.0\n"
        "Generator: momentd deploy/wheel\n"
        "Root-Is-Purelib: false\n"
        f"Tag: {tag}\n"
    )


def entry_points(project):
    scripts = (f"{name} = {target}\n" for name, target in project["scripts"].items())
    return "[console_scripts]\n" + "".join(scripts)
