"""The exception tree of pjrt-hub (imports nothing of ours).

    PjrtHubError
      PluginError                 which plugin to use, or whether it can be used
        PluginNotFoundError       no candidate was chosen; `.rejections` says why (LookupError)
        AmbiguousPluginError      several candidates have an equal claim to be chosen
        TargetNotFoundError       the plugin knows no such machine to compile for (LookupError)
        ManifestError             a plugin's data is malformed (ValueError)
        PluginLoadError           the library cannot be loaded; `.path` (ImportError)
        IncompatiblePluginError   its PJRT API or StableHLO version does not fit; `.need`, `.have`
        PluginCrashedError        a separate process that used it died; `.signal`, `.returncode`, `.stderr`
        PluginTimeoutError        such a process passed its deadline; `.seconds`
      StoreError                  getting and keeping binaries
        DownloadError             no source gave the file; `.url` (OSError)
        DigestMismatchError       bytes are not the pinned bytes; `.expected`, `.actual`
        ArchiveError              an archive is malformed or not what the pin says
        CacheError                the cache directory cannot be used
        OfflineError              the network is needed and was forbidden
        LockFileError             `pylock.pjrt.toml` cannot be read, written or fulfilled; `.path`
      FileFormatError             a program or data file is malformed; `.path` (ValueError)
      NotRunnableError            an exported function cannot be run here; `.reasons` (RuntimeError)
      FrameworkError              a framework on top is missing or too old, or does not accept a plugin (RuntimeError)
      ClosedError                 used after close, delete, donation or fork (ValueError)
      UnsupportedByPluginError    the plugin lacks a function; `.function`, `.since`, `.have` (NotImplementedError)
      PjrtError                   the plugin answered with an error; `.code`, `.function`, `.payloads` (RuntimeError)
        one class per status code: InvalidArgumentError, NotFoundError, ...
      InternalError               a broken invariant of pjrt-hub itself: please report it

Every message says what failed and what was found; a `hint`, where there is one, is printed
after a blank line as `hint: ...` and holds the next command or step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike


class PjrtHubError(Exception):
    """Root of everything that pjrt-hub raises on purpose.

    Attributes:
        message: what failed and what was found, without the hint.
        hint: the next step for the user, or an empty string.
        next_step: the hint of a class, for errors that have no better one.
    """

    next_step = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.next_step

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


class PluginError(PjrtHubError):
    """A plugin cannot be chosen or used."""

    next_step = "`pjrt-hub doctor` says step by step what would happen, and what is missing"


class PluginNotFoundError(PluginError, LookupError):
    """No plugin was chosen.

    Attributes:
        rejections: every candidate that lost, each with its reason (`discovery.Rejection`).
    """

    next_step = "`pjrt-hub list` shows every plugin, and why it was passed over"

    def __init__(self, message: str, *, rejections: Sequence[object] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rejections = tuple(rejections)


class AmbiguousPluginError(PluginError):
    """Several candidates claim the same name or the same first place; the message names each."""

    next_step = 'name one of them as "distribution:plugin"; `pjrt-hub list` shows both'


class TargetNotFoundError(PluginError, LookupError):
    """The plugin knows no machine of that name to compile for."""

    next_step = "`pjrt-hub targets` lists the machines that can be compiled for"


class ManifestError(PluginError, ValueError):
    """A manifest or a registry row is malformed, or not to be trusted."""

    next_step = "correct that file; docs/manifest.md has its form"


class PluginLoadError(PluginError, ImportError):
    """The shared library cannot be loaded.

    Attributes:
        path: the library's absolute path.
    """

    next_step = "`pjrt-hub doctor` with the library's path says what it lacks"

    def __init__(self, message: str, *, path: str | PathLike[str], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = str(path)


class IncompatiblePluginError(PluginError):
    """The plugin's PJRT API version does not fit, or its StableHLO is older than a program's.

    Attributes:
        need: what is needed, as text ("0.57 or newer").
        have: what the plugin has, as text ("0.55").
    """

    next_step = "install a release of the plugin that fits, or of pjrt-hub"

    def __init__(self, message: str, *, need: str, have: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.need = need
        self.have = have


class PluginCrashedError(PluginError):
    """A separate process that used the plugin died, at first contact or while it compiled.

    Attributes:
        signal: the signal's name ("SIGABRT"), or None if the child exited by itself.
        returncode: the child's exit status, negative for a signal.
        stderr: the last lines that the plugin wrote.
    """

    next_step = "try another release of the plugin; `pjrt-hub doctor` meets it again"

    def __init__(
        self, message: str, *, signal: str | None, returncode: int, stderr: str, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.signal = signal
        self.returncode = returncode
        self.stderr = stderr


class PluginTimeoutError(PluginError):
    """A separate process that used the plugin passed its deadline and was ended.

    Attributes:
        seconds: the deadline.
    """

    next_step = "end what holds the device, or set PJRT_HUB_PROBE_SECONDS"

    def __init__(self, message: str, *, seconds: float, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.seconds = seconds


class StoreError(PjrtHubError):
    """A binary cannot be fetched, unpacked or kept."""

    next_step = "`pjrt-hub fetch PLATFORM --verbose` shows each step"


class DownloadError(StoreError, OSError):
    """No source gave the file.

    Attributes:
        url: the last URL tried, with credentials removed.
    """

    next_step = "`pjrt-hub fetch PLATFORM --verbose` shows each address and its answer"

    def __init__(self, message: str, *, url: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.url = url


class DigestMismatchError(StoreError):
    """The bytes are not those that the registry pins; none of them were kept.

    Attributes:
        expected: the pinned digest, "sha256:<hex>".
        actual: the digest of the bytes that came.
    """

    next_step = "set PJRT_HUB_MIRRORS to a place that holds the original file"

    def __init__(self, message: str, *, expected: str, actual: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.expected = expected
        self.actual = actual


class ArchiveError(StoreError):
    """An archive is malformed, hostile, or lacks a pinned member."""

    next_step = "fetch the archive again, or report it to those who publish it"


class CacheError(StoreError):
    """The cache directory cannot be used: permissions, space, or a foreign owner."""

    next_step = "set PJRT_HUB_CACHE to a directory that only you can write to"


class OfflineError(StoreError):
    """The file is not in the cache and the network was forbidden."""

    next_step = (
        "run `pjrt-hub fetch PLATFORM` while there is a network, or bring it in a bundle "
        "(docs/airgapped.md)"
    )


class LockFileError(StoreError):
    """A `pylock.pjrt.toml` cannot be read, written, or made to hold what was asked for.

    Attributes:
        path: the lock file.
    """

    next_step = "write it again by `pjrt-hub lock`"

    def __init__(self, message: str, *, path: str | PathLike[str], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = str(path)


class FileFormatError(PjrtHubError, ValueError):
    """A program, or a file of arguments or weights, is not what it has to be.

    Attributes:
        path: the file.
    """

    next_step = "make that file again"

    def __init__(self, message: str, *, path: str | PathLike[str], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = str(path)


class NotRunnableError(PjrtHubError, RuntimeError):
    """An exported function is intact, but cannot be run by this pjrt-hub or on this plugin.

    Attributes:
        reasons: why it cannot be run, one text for each reason.
    """

    next_step = "`pjrt-hub inspect` says what the file needs"

    def __init__(self, message: str, *, reasons: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reasons = tuple(reasons) or (message,)


class FrameworkError(PjrtHubError, RuntimeError):
    """A framework that uses plugins of pjrt-hub is missing, too old, or does not accept one."""

    next_step = "`pjrt-hub doctor` says what would happen without the framework"


class ClosedError(PjrtHubError, ValueError):
    """An object was used after it was closed, deleted or donated, or after a fork."""

    next_step = "make a new one: what was closed, deleted or donated stays so"

    def __init__(self, message: str, *, hint: str = "") -> None:
        # C raises it with the message alone, which may bring its hint.
        message, _, brought = message.partition("\n\nhint: ")
        super().__init__(message, hint=hint or brought)


class UnsupportedByPluginError(PjrtHubError, NotImplementedError):
    """The plugin lacks a function of the PJRT C API.

    Attributes:
        function: the C function.
        since: the PJRT API version that introduced it, as text.
        have: the plugin's version, as text.
    """

    next_step = "a newer release of the plugin may have it; docs/coverage.md says since when"

    def __init__(
        self, message: str, *, function: str, since: str, have: str, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.function = function
        self.since = since
        self.have = have


class InternalError(PjrtHubError):
    """Something is wrong inside pjrt-hub itself."""

    next_step = "report it, with the traceback"


class PjrtError(PjrtHubError, RuntimeError):
    """The plugin answered a call with an error (`PJRT_Error`).

    Attributes:
        code: the `PJRT_Error_Code`, 1 to 16 (the absl status codes).
        function: the C function that failed, or an empty string for an asynchronous failure.
        payloads: the error's payloads, empty if the plugin's PJRT API is older than 0.99.
    """

    code = 2

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        function: str = "",
        payloads: Mapping[str, bytes] | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        if code is not None:
            self.code = code
        self.function = function
        self.payloads = dict(payloads or {})


class CancelledError(PjrtError):
    """The operation was cancelled (CANCELLED)."""

    code = 1


class UnknownError(PjrtError):
    """The plugin gave no specific code, as for MLIR that does not parse or verify (UNKNOWN)."""

    code = 2


class InvalidArgumentError(PjrtError, ValueError):
    """An argument is wrong (INVALID_ARGUMENT)."""

    code = 3


class DeadlineExceededError(PjrtError, TimeoutError):
    """Something did not happen in time (DEADLINE_EXCEEDED)."""

    code = 4


class NotFoundError(PjrtError, LookupError):
    """Something that was asked for does not exist (NOT_FOUND)."""

    code = 5


class AlreadyExistsError(PjrtError):
    """Something that was to be made exists already (ALREADY_EXISTS)."""

    next_step = "give it another name; what is registered stays until the process ends"
    code = 6


class PermissionDeniedError(PjrtError):
    """The process lacks the permission for this call (PERMISSION_DENIED)."""

    next_step = "ask for access to the device: `ls -l /dev` shows whose it is"
    code = 7


class ResourceExhaustedError(PjrtError, MemoryError):
    """The device is out of memory (RESOURCE_EXHAUSTED)."""

    next_step = "delete buffers, donate arguments, or use smaller shapes"
    code = 8


class FailedPreconditionError(PjrtError):
    """The plugin is not in the state that the call needs (FAILED_PRECONDITION)."""

    code = 9


class AbortedError(PjrtError):
    """The operation was aborted (ABORTED)."""

    code = 10


class OutOfRangeError(PjrtError, IndexError):
    """A value is out of range (OUT_OF_RANGE)."""

    code = 11


class UnimplementedError(PjrtError, NotImplementedError):
    """The plugin does not offer what the function was asked for (UNIMPLEMENTED)."""

    next_step = "another plugin, or a newer release of this one, may offer it"
    code = 12


class PluginInternalError(PjrtError):
    """The plugin reports an error of its own (INTERNAL)."""

    next_step = (
        "some plugins say so of wrong options and programs too: try it with none, or a plain one; "
        "if that fails as well, report it to the plugin's authors, with what it wrote to stderr"
    )
    code = 13


class UnavailableError(PjrtError):
    """A device or a service cannot be used for now (UNAVAILABLE)."""

    next_step = "end what holds the device, then try again"
    code = 14


class DataLossError(PjrtError):
    """Data are lost or damaged (DATA_LOSS)."""

    next_step = "make or fetch the data again"
    code = 15


class UnauthenticatedError(PjrtError):
    """A service does not know who is calling (UNAUTHENTICATED)."""

    next_step = "log in to the service that the plugin talks to"
    code = 16
