"""Compile options: what a user says about a compilation, as CompileOptionsProto.

The numbers are fields of XLA's CompileOptionsProto and ExecutableBuildOptionsProto. XLA's flags go
by name, never through a partial DebugOptions message: that would zero all its other defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple

from pjrt_hub.errors import InternalError
from pjrt_hub.running.capi import wire
from pjrt_hub.running.program import option
from pjrt_hub.running.program.option import Flag, Kind

_BUILD_OPTIONS, _FLAGS = 3, 7
_DEVICE_ORDINAL, _UNSET_ORDINAL = 1, -1
_ALWAYS = ("num_replicas", "num_partitions")
#: The values of ExecutionOptions.EffortLevel, EFFORT_O0 to EFFORT_O3, and of
#: PrecisionConfig.Precision.
_EFFORT: dict[str | int, int] = {0: 9, 1: 19, 2: 29, 3: 39}
_PRECISION: dict[str | int, int] = {"default": 0, "high": 1, "highest": 2}


class _Option(NamedTuple):
    """One option."""

    number: int  # The number of the field in its message.
    kind: Kind  # How its value is checked and written.
    default: Any  # Its value if none is given.
    unsaid: Any  # The value that a message without the field means; mostly the default.
    build: bool  # Whether the message is ExecutableBuildOptionsProto.
    name: str = ""  # The name of the attribute of `CompileOptions`.


def _field(build: bool, number: int, kind: Kind, default: Any = None, unsaid: Any = None) -> Any:
    unsaid = default if unsaid is None else unsaid
    said = {"option": _Option(number, kind, default, unsaid, build)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=said)
    return field(default=default, metadata=said)


#: These declare fields of CompileOptionsProto, and of the ExecutableBuildOptionsProto in it.
_compile, _build = partial(_field, False), partial(_field, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """Options for `Client.compile`, every one that a plugin of PJRT API 0.117 reads.

    Those that are None or empty are left to the plugin. A plugin ignores what it does not know or
    need, without a word. Shapes are (dtype, shape, layout), as `signature.parameters` has them:
    ("f32", (2, 3), (0, 1)) is column-major, without a layout it is row-major.

    Not here: `debug_options`, which `flags` replace, and the efforts and `slice_size`, which are
    gone in 0.117.

    Attributes:
        num_replicas: copies of the program that run together, at least 1; None is as many as
            `device_ids` or the program says (`mhlo.num_replicas`), else 1.
        num_partitions: parts that the program is split into, at least 1; None as for the replicas
            (`mhlo.num_partitions`).
        device_ids: the device of each `[replica][partition]`; None leaves the choice to the plugin,
            which takes the first ones.
        use_spmd_partitioning: split one program over the partitions; None: if there are several.
        use_shardy_partitioner: split by Shardy's annotations; None: if the program has them.
        allow_spmd_sharding_propagation_to_parameters: whether the partitioner may choose how
            parameters without annotation are split: one bool for all of them or, beside
            `argument_layouts`, one for each.
        allow_spmd_sharding_propagation_to_output: the same for the outputs, in any number.
        use_auto_spmd_partitioning: let the compiler find the annotations.
        auto_spmd_partitioning_mesh_shape: the mesh that it splits over, as large as the partitions.
        auto_spmd_partitioning_mesh_ids: the partitions in the mesh's order.
        compile_portable_executable: for any one device, chosen at `execute_on`.
        parameter_is_tupled_arguments: the program takes its arguments as one tuple.
        argument_layouts: the shape of every argument, of the whole program before it is split.
        result_layout: the shape of every output; the XLA CPU plugin ignores it.
        optimization_level: how much time to spend on fast code, 0 to 3.
        memory_fitting_level: how much time to spend on fitting into memory, 0 to 3.
        device_memory_size: bytes that the program may use.
        deduplicate_hlo: compile equal parts once.
        alias_passthrough_params: outputs that are parameters share their memory.
        run_backend_only: the program is optimized HLO already.
        allow_in_place_mlir_modification: the compiler may change the program it was given.
        matrix_unit_operand_precision: "default", "high" or "highest" (after 0.81).
        fdo_profile: a profile for feedback-directed optimization.
        profile_version: of the profile that the compiler looks up.
        process_index: this process among those that compile together, below `process_count`.
        process_count: the processes that compile together.
        compiler_variant: the name of one of the plugin's compilers (after 0.81).
        individually_defined_output_indices: outputs that become ready by themselves (0.117).
        target_config: a serialized GpuTargetConfigProto, for a GPU that is not here.
        gpu_topology: a serialized GpuTopologyProto (0.117).
        serialized_multi_slice_config: what the plugin's multi-slice extension gave.
        comp_envs: a serialized CompilationEnvironmentsProto.
        flags: XLA's flags by name without dashes, "xla_cpu_enable_fast_math": True. A str is
            parsed by the plugin as the flag's own type, "true" and "false" in any case; an unknown
            name is an error of the compile.
            Those of `Plugin.compile_flags` are added where they are not named here; None leaves
            a flag to the plugin, also one of those.
        unread: fields that `parse` found beside these, as a CompileOptionsProto that `serialize`
            passes on; None if nothing was parsed. Parsed options are not checked again.
    """

    __module__ = "pjrt_hub"
    num_replicas: int | None = _build(4, option.Int(1, option.INT32_MAX), unsaid=1)
    num_partitions: int | None = _build(5, option.Int(1, option.INT32_MAX), unsaid=1)
    device_ids: Sequence[Sequence[int]] | None = _build(9, option.DeviceAssignment())
    use_spmd_partitioning: bool | None = _build(6, option.BOOL, unsaid=False)
    use_shardy_partitioner: bool | None = _build(19, option.BOOL, unsaid=False)
    allow_spmd_sharding_propagation_to_parameters: Sequence[bool] = _build(
        18, option.Several(option.BOOL), ()
    )
    allow_spmd_sharding_propagation_to_output: Sequence[bool] = _build(
        12, option.Several(option.BOOL), ()
    )
    use_auto_spmd_partitioning: bool = _build(7, option.BOOL, False)
    auto_spmd_partitioning_mesh_shape: Sequence[int] = _build(
        16, option.Several(option.Int(1, option.INT32_MAX)), ()
    )
    auto_spmd_partitioning_mesh_ids: Sequence[int] = _build(
        17, option.Several(option.Int(0, option.INT32_MAX)), ()
    )
    compile_portable_executable: bool = _compile(4, option.BOOL, False)
    parameter_is_tupled_arguments: bool = _compile(2, option.BOOL, False)
    argument_layouts: Sequence[tuple[Any, ...]] = _compile(1, option.Shapes(), ())
    result_layout: Sequence[tuple[Any, ...]] = _build(2, option.Shapes(one=True), ())
    optimization_level: int | None = _build(24, option.OneOf(_EFFORT))
    memory_fitting_level: int | None = _build(25, option.OneOf(_EFFORT))
    device_memory_size: int | None = _build(15, option.Int(1))
    deduplicate_hlo: bool = _build(8, option.BOOL, False)
    alias_passthrough_params: bool = _build(10, option.BOOL, False)
    run_backend_only: bool = _build(11, option.BOOL, False)
    allow_in_place_mlir_modification: bool = _compile(9, option.BOOL, False)
    matrix_unit_operand_precision: str | None = _compile(10, option.OneOf(_PRECISION))
    fdo_profile: bytes | None = _build(14, option.MESSAGE)
    profile_version: int | None = _compile(5, option.Int())
    process_index: int | None = _build(22, option.Int(0, option.INT32_MAX))
    process_count: int | None = _build(23, option.Int(1, option.INT32_MAX))
    compiler_variant: str | None = _compile(11, option.TEXT)
    individually_defined_output_indices: Sequence[int] = _compile(
        12, option.Several(option.Int(0, option.INT32_MAX)), ()
    )
    target_config: bytes | None = _compile(8, option.MESSAGE)
    gpu_topology: bytes | None = _build(27, option.MESSAGE)
    serialized_multi_slice_config: bytes | None = _compile(6, option.MESSAGE)
    comp_envs: bytes | None = _build(13, option.MESSAGE)
    flags: Mapping[str, Flag] = _compile(_FLAGS, option.Flags(), {})
    unread: bytes | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse options that a plugin would abort on, or that contradict each other."""
        if self.unread is not None:
            return
        for each in _OPTIONS:
            value = getattr(self, each.name)
            if value is not None or each.default is not None:
                object.__setattr__(self, each.name, each.kind.check(each.name, value))
        object.__setattr__(self, "flags", _spell_bools(self.flags))
        self._check_devices()
        self._check_partitioning()
        if (self.process_index or 0) >= (self.process_count or option.INT32_MAX):
            raise ValueError(
                f"process_index is {self.process_index} of {self.process_count} process(es)"
            )

    def _check_devices(self) -> None:
        if self.device_ids is not None:
            shape = [len(row) for row in self.device_ids]
            counts = {"num_replicas": len(shape), "num_partitions": max(shape, default=0)}
            for name, count in counts.items():
                if getattr(self, name) is None:
                    object.__setattr__(self, name, max(count, 1))
            if shape != [self.num_partitions] * (self.num_replicas or 1):
                raise ValueError(
                    f"device_ids has rows of {shape} ids; it needs {self.num_replicas} row(s), one "
                    f"for each replica, of {self.num_partitions} id(s), one for each partition"
                )
        if self.compile_portable_executable and (
            max(self.num_replicas or 1, self.num_partitions or 1) > 1 or self.device_ids is not None
        ):
            raise ValueError(
                "compile_portable_executable is for one device that is chosen later: it goes with "
                "neither device_ids nor several replicas or partitions"
            )

    def _check_partitioning(self) -> None:
        """Refuse partitioning options that XLA would abort on or ignore."""
        allowed = len(self.allow_spmd_sharding_propagation_to_parameters)
        if allowed > 1 and allowed != len(self.argument_layouts):
            raise ValueError(
                f"allow_spmd_sharding_propagation_to_parameters has {allowed} values; give one for "
                "all parameters, or one for each beside argument_layouts, which then tell how many "
                f"there are (now {len(self.argument_layouts)})"
            )
        mesh, ids = self.auto_spmd_partitioning_mesh_shape, self.auto_spmd_partitioning_mesh_ids
        if (mesh or ids) and not self.use_auto_spmd_partitioning:
            raise ValueError("auto_spmd_partitioning_mesh_* needs use_auto_spmd_partitioning")
        if self.use_auto_spmd_partitioning and not self.use_spmd_partitioning:
            raise ValueError("use_auto_spmd_partitioning needs use_spmd_partitioning")
        if self.num_partitions is None:  # The program tells the number.
            return
        if mesh and math.prod(mesh) != self.num_partitions:
            raise ValueError(
                f"auto_spmd_partitioning_mesh_shape is {tuple(mesh)}, which has not the size of "
                f"{self.num_partitions} partition(s)"
            )
        if ids and sorted(ids) != list(range(self.num_partitions)):
            raise ValueError(
                f"auto_spmd_partitioning_mesh_ids is {tuple(ids)}; it must name each of the "
                f"{self.num_partitions} partition(s) once, from 0"
            )

    def serialize(self) -> bytes:
        """Make the CompileOptionsProto.

        The device ordinal and both counts are always sent: without them the XLA CPU plugin aborts.

        Raises:
            ValueError: a count is below 1, in options that were parsed.
        """
        build, options = [wire.varint(_DEVICE_ORDINAL, _UNSET_ORDINAL)], list[bytes]()
        counts = b""
        for each in _OPTIONS:
            value = getattr(self, each.name)
            value = each.unsaid if value is None else value
            if each.name in _ALWAYS:
                counts += each.kind.write(each.number, each.kind.check(each.name, value))
            elif value != each.unsaid:
                where = build if each.build else options
                where.append(each.kind.write(each.number, value))
        # Protobuf merges repeated messages, so the last counts win over any in the unread fields.
        known, last = (
            wire.length_delimited(_BUILD_OPTIONS, each) for each in (b"".join(build), counts)
        )
        return b"".join([known, *options, self.unread or b"", last])

    @classmethod
    def parse(cls, message: bytes) -> CompileOptions:
        """Read a CompileOptionsProto of any host's release, or a plugin's echo.

        What is not known here, such as DebugOptions, is kept in `unread`.

        Args:
            message: serialized.

        Raises:
            InternalError: the bytes are no message.
        """
        given: dict[str, Any] = {each.name: each.unsaid for each in _OPTIONS}
        try:
            options, build = _split(message)
        except ValueError as exc:
            raise InternalError(f"the bytes are not a CompileOptionsProto: {exc}") from None
        for each in _OPTIONS:
            source = build if each.build else options
            value = _read(each.kind, [value for value, _ in source.get(each.number, ())])
            if value is not None:
                given[each.name] = value
                del source[each.number]
        if [value for value, _ in build.get(_DEVICE_ORDINAL, ())] == [_UNSET_ORDINAL & (2**64 - 1)]:
            del build[_DEVICE_ORDINAL]
        unread = _join(options)
        if build:
            unread += wire.length_delimited(_BUILD_OPTIONS, _join(build))
        return cls(**given, unread=unread)

    def changed(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, by name."""
        return {
            each.name: value
            for each in _OPTIONS
            if (value := getattr(self, each.name)) not in (each.default, each.unsaid)
        }

    def __repr__(self) -> str:
        default = CompileOptions()
        told = (
            f"{name}={f'<{len(value)} bytes>' if isinstance(value, bytes) else repr(value)}"
            for each in fields(self)
            if (value := getattr(self, name := each.name)) != getattr(default, name)
            and (name != "unread" or value)
        )
        return f"CompileOptions({', '.join(told)})"


def _spell_bools(flags: Mapping[str, Flag]) -> dict[str, Flag]:
    """Write the texts true and false as plugins read them of a flag; XLA_FLAGS takes any case."""
    return {
        name: value.capitalize()
        if isinstance(value, str) and value.lower() in ("true", "false")
        else value
        for name, value in flags.items()
    }


def write_flags(flags: Mapping[str, Flag]) -> bytes:
    """Write flags of XLA alone, which may follow any serialized options."""
    kind = option.Flags()
    return kind.write(_FLAGS, _spell_bools(kind.check("flags", flags)))


def raw(message: bytes) -> dict[str, int | memoryview]:
    """Read each option's last value from a CompileOptionsProto, unconverted and unchecked."""
    options, build = _split(message)
    return {
        each.name: found[-1][0]
        for each in _OPTIONS
        if (found := (build if each.build else options).get(each.number))
    }


#: The fields of a message by number: each value, and its encoded form.
_Fields = dict[int, list[tuple[int | memoryview, memoryview]]]


def _split(message: bytes) -> tuple[_Fields, _Fields]:
    """Return the fields of a CompileOptionsProto, and of the build options inside it."""
    options = _group(memoryview(message))
    given = [value for value, _ in options.get(_BUILD_OPTIONS, ())]
    if not all(isinstance(each, memoryview) for each in given):
        raise ValueError("the build options are a number")
    options.pop(_BUILD_OPTIONS, None)
    return options, _group(memoryview(b"".join(given)))  # type: ignore[arg-type]


def _group(message: memoryview) -> _Fields:
    found: _Fields = {}
    for number, value, encoded in wire.encoded_fields(message):
        found.setdefault(number, []).append((value, encoded))
    return found


def _join(found: _Fields) -> bytes:
    return b"".join(encoded for several in found.values() for _, encoded in several)


def _read(kind: Kind, found: option.Found) -> Any:
    """Return a field's value; None if it is absent, or of a form that is unknown here."""
    try:
        return kind.read(found) if found else None
    except (TypeError, ValueError):
        return None


_OPTIONS = tuple(
    each.metadata["option"]._replace(name=each.name)
    for each in fields(CompileOptions)
    if each.metadata
)
