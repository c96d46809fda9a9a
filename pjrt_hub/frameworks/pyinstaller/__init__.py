"""Programs that PyInstaller freezes: what it is to collect for them, which it asks for here."""


def hook_folders() -> list[str]:
    """Return the folders of hooks, for PyInstaller's entry-point group `pyinstaller40`."""
    return list(__path__)
