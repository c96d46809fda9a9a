"""What PyInstaller collects for a program that imports pjrt_hub.

Much is imported or read on first use, and a plugin is found by the files and the metadata of its
package. Frameworks and the kit for plugin authors are left out unless the program imports them.
"""

from os.path import isfile
from typing import Any

from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata

from pjrt_hub.door import preflight, process
from pjrt_hub.finding.discovery.requirement import find_required
from pjrt_hub.finding.discovery.survey import survey

_LEFT_OUT = ("kit.", "cli", "__main__", "frameworks.pyinstaller")

excludedimports = ["IPython", "jax", "jaxlib", "pytest", "torch", "torch_xla"]


def hook(hook_api: Any) -> None:
    """Add pjrt_hub, each installed plugin with what it requires, and packages of registry rows."""
    hook_api.add_imports("_cffi_backend", *collect_submodules("pjrt_hub", filter=_is_used))
    hook_api.add_datas(copy_metadata("pjrt-hub") + collect_data_files("pjrt_plugins"))
    hook_api.add_datas(collect_data_files("pjrt_hub", excludes=["kit/**"]))
    here = process.world()
    distributions = set()
    for each in survey(here).candidates:
        if each.library_path is None or each.artifact is not None:
            continue  # The plugin is not installed.
        needed = preflight.dependencies(each.library_path, each.manifest, here)
        required = find_required(here, each.name, each.distribution, each.version)
        distributions |= {here.installed.owner(path) for path in (each.library_path, *needed)}
        distributions |= {here.installed.get(one.package) for one in required}
        home = each.manifest.path
        if each.manifest.module and home and isfile(home.with_name("__init__.py")):
            hook_api.add_imports(each.manifest.module)  # pjrt-hub calls its `initialize`.
    distributions |= {each.distribution for each in here.installed.registries}
    for distribution in filter(None, distributions):
        for file in here.installed.files(distribution):
            if not file.endswith((".py", ".pyc")) and not file.startswith(("..", "/")):
                folder = file.rpartition("/")[0] or "."
                hook_api.add_datas([(str(distribution.folder / file), folder)])


def _is_used(module: str) -> bool:
    return not module.removeprefix("pjrt_hub.").startswith(_LEFT_OUT)
