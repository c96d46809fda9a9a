"""What names mean where a process is started: nothing of the working directory.

Owns how a Python of ours is started and where programs are looked for. Must not start any.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping


def python(*arguments: str) -> list[str]:
    """Gives the command line of a Python that takes no module from the working directory.

    `-I` would do more than that: the user's own packages and PYTHONPATH would be missing.

    Args:
        arguments: as for Python: "-m", a module, and its arguments.
    """
    return [sys.executable, "-P", *arguments]


def environment(env: Mapping[str, str], *folders: str) -> dict[str, str]:
    """Gives the variables for it: an empty entry of PYTHONPATH means the working directory.

    Args:
        env: the variables of this process.
        folders: come first on its PYTHONPATH.
    """
    path = filter(None, (*folders, *env.get("PYTHONPATH", "").split(os.pathsep)))
    return {**env, "PYTHONPATH": os.pathsep.join(path)}


def which(program: str, env: Mapping[str, str]) -> str | None:
    """Finds a program on PATH, in folders that are the same from wherever one looks.

    Args:
        program: its name.
        env: PATH is its list of folders; relative and empty entries are left out.

    Returns:
        Its absolute path, or None where there is none.
    """
    import shutil

    folders = filter(os.path.isabs, env.get("PATH", os.defpath).split(os.pathsep))
    return shutil.which(program, path=os.pathsep.join(folders))
