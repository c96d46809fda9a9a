"""What PyInstaller must collect for the programs that it freezes; PyInstaller asks this package."""


def hook_folders() -> list[str]:
    """Return the folders of hooks, for PyInstaller's entry-point group `pyinstaller40`."""
    return list(__path__)
