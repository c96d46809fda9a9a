"""XLA transforms: Python functions that change programs on their way through a compiler.

From the extension XlaTransform. Modules pass as serialized HloModuleProto; nothing looks inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pjrt_hub.base.fork import Lock
from pjrt_hub.errors import AlreadyExistsError
from pjrt_hub.running.capi import hotpath
from pjrt_hub.running.capi.handle import Closing
from pjrt_hub.running.capi.library import Api
from pjrt_hub.running.capi.status import Failure, failure

Stage = Literal["pre_scheduler", "post_scheduler"]
_STAGES: dict[str, int] = {"pre_scheduler": 0, "post_scheduler": 1}

_registering = Lock()
_registered: dict[int, tuple[int, str, str]] = {}


class XlaTransform(Closing):
    """A function that a plugin's compiler calls with every module, until `clear`.

    Also a context manager:

        with XlaTransform(plugin.api, "look", print):
            topology.compile(program)

    Attributes:
        api: the plugin's function table.
        name: of the transform.
        stage: when it is called.
    """

    def __init__(
        self,
        api: Api,
        name: str,
        function: Callable[[bytes], bytes | None],
        stage: Stage = "pre_scheduler",
    ) -> None:
        """Register the function (`PJRT_Register_Xla_Transform`).

        Args:
            api: the plugin's function table.
            name: unique for each stage.
            function: takes an HloModuleProto, serialized, and gives the one to go on with, or None.
                An exception becomes the error of the compilation. It runs on a thread of the
                plugin, for each module of a program: also for those that fusions are made of.
            stage: before or after the order of instructions is chosen.

        Raises:
            UnsupportedByPluginError: the plugin has no such extension.
            TypeError: the function cannot be called.
            ValueError: no name, or no such stage.
            AlreadyExistsError: the stage has a transform of that name.
            PjrtError: the plugin refuses it.
        """
        if not name or stage not in _STAGES:
            raise ValueError(
                f"{name!r} is not a name, or {stage!r} not one of {', '.join(_STAGES)}"
            )
        if not callable(function):
            raise TypeError(f"{function!r} cannot be called")
        self.api = api
        self.name = name
        self.stage = stage
        node = api.extension("XlaTransform")
        node.require("PJRT_Register_Xla_Transform")
        with _registering:
            if (api.address, name, stage) in _registered.values():  # The plugin would run both.
                raise AlreadyExistsError(
                    f"there is a transform {name!r} at the stage {stage} already",
                    function="PJRT_Register_Xla_Transform",
                )
            self._callbacks = hotpath.xla_transform(_guard(name, function))
            node.call(
                "PJRT_Register_Xla_Transform",
                name=name,
                stage=_STAGES[stage],
                callbacks=self._callbacks,
            )
            _registered[self._callbacks] = api.address, name, stage

    def clear(self) -> bool:
        """Remove the transform (`PJRT_Clear_Xla_Transform`); tell if the plugin still had it."""
        with _registering:
            if self._callbacks not in _registered:
                return False
            cleared = self.api.extension("XlaTransform").call(
                "PJRT_Clear_Xla_Transform",
                name=self.name,
                stage=_STAGES[self.stage],
                callbacks=self._callbacks,
            )
            del _registered[self._callbacks]
        return bool(cleared)

    def close(self) -> None:
        """Call `clear`, as leaving a `with` block does."""
        self.clear()


def _guard(
    name: str, function: Callable[[bytes], bytes | None]
) -> Callable[[bytes], bytes | Failure | None]:
    def ask(module: bytes) -> bytes | Failure | None:
        try:
            answer = function(module)
            if answer is not None and not isinstance(answer, bytes):
                raise TypeError(f"it returned {type(answer).__name__}, neither bytes nor None")
        except BaseException as exc:
            return failure(exc, name, 1)
        return answer

    return ask
