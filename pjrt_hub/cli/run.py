"""`pjrt-hub run`: one program, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import pjrt_hub
from pjrt_hub.cli import arguments, output, program_file
from pjrt_hub.cli.command import Command, offline_option
from pjrt_hub.errors import PjrtHubError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pjrt_hub import Buffer, Client, LoadedExecutable, Program
    from pjrt_hub.frameworks.exported.function import ExportedFunction


def parse_all(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> list[arguments.Argument]:
    """Read the arguments; a malformed literal or a missing file is a usage error."""
    try:
        return [arguments.parse_named(text) for text in texts]
    except PjrtHubError:
        raise
    except (ValueError, MemoryError) as exc:
        raise click.BadParameter(
            f"{exc}. An argument is FILE.npy, FILE.safetensors:TENSOR, or a literal such as "
            "3.0 or f32[2,2]:1,2,3,4, with NAME= before it where the program has names.",
            ctx,
            param,
        ) from exc
    except OSError as exc:
        raise click.BadParameter(f"{exc.filename}: {exc.strerror}.", ctx, param) from exc


def in_a_folder(ctx: click.Context, param: click.Parameter, out: Path | None) -> Path | None:
    """Refuse an output path in a folder that does not exist, before anything runs."""
    if out is not None and not out.parent.is_dir():
        raise click.BadParameter(f"there is no folder {out.parent}.", ctx, param)
    return out


@click.command(
    "run",
    cls=Command,
    examples=(
        "pjrt-hub run add.mlir --arg f32[2]:1,2 --arg f32[2]:3",
        "pjrt-hub run model.jaxexport --platform cpu --arg x=@x.npy --output y.npy",
    ),
)
@click.argument("program", type=program_file.PROGRAM)
@click.option(
    "--arg",
    "args",
    multiple=True,
    callback=parse_all,
    metavar="[NAME=]VALUE",
    help="An argument, in order: FILE.npy, FILE.npz:ARRAY, FILE.safetensors:TENSOR, or a literal "
    "such as 3.0 or f32[2,2]:1,2,3,4. Those of an exported function also by the names that "
    "`pjrt-hub inspect` prints, and a dict from a whole .npz or .safetensors file.",
)
@click.option("--platform", help="The platform, or a library's path; else the best one here.")
@output.option(
    "out",
    "Write the result to FILE.npy, or each result to DIR/0.npy, DIR/1.npy and so on.",
    kind=click.Path(path_type=Path),
    callback=in_a_folder,
)
@click.option(
    "--no-isolate",
    is_flag=True,
    help="Compile in this process, which a program may end where the compiler dies of it.",
)
@offline_option
def command(
    program: Path,
    args: list[arguments.Argument],
    platform: str | None,
    out: Path | None,
    no_isolate: bool,
    offline: bool,
    as_json: bool,
) -> None:
    """Compile a program, run it, and print its results.

    PROGRAM is StableHLO text or bytecode, an HLO proto, what jax.export serialized, or a folder
    that torch_xla saved.
    """
    from pjrt_hub.frameworks.exported.load import isolates

    source = program_file.read(program)
    isolated = isolates() and not no_isolate
    with connect(platform, offline, source) as client:
        places: Sequence[str] = ()
        if isinstance(source, pjrt_hub.Program):
            with _usage_errors(
                lambda: "this runs on one device; docs/executables.md runs on several, in Python"
            ):
                executable = client.compile(source, isolated=isolated)
            results = call(client, executable, arrays(args), source)
        else:
            places = source.output_paths
            results = call_exported(client, source, args, isolated=isolated)
        paths = write(results, out) if out else []
        if as_json:
            output.show_json(
                {
                    "platform": client.platform_name,
                    "results": [
                        {**as_dict(result), **({"place": place} if place else {})}
                        for result, place in zip_longest(results, places)
                    ],
                    "paths": [str(path) for path in paths],
                }
            )
        elif paths:
            for path in paths:
                print(path)
        else:
            for result, place in zip_longest(results, places):
                if len(places) > 1:
                    print(f"{place}:")
                shape = ",".join(map(str, result.to_numpy().shape))
                print(f"{result}\n{result.element_type}[{shape}] on {result.device}")


def connect(platform: str | None, offline: bool, source: ExportedFunction | Program) -> Client:
    """Make a client for the value of `--platform`: a platform's name, or the path of a library."""
    if isinstance(source, pjrt_hub.Program):
        return pjrt_hub.client(platform, offline=offline)
    from pjrt_hub.frameworks.exported.load import client_for

    return client_for(source, platform, offline=offline)


def arrays(args: Sequence[arguments.Argument]) -> list[NDArray[Any]]:
    """Return the arguments of a program by itself, which takes them in order."""
    for each in args:
        if each.place is not None:
            raise PjrtHubError(
                f"the program takes arguments by their order, not {each.place!r} by name",
                hint="omit the name: --arg f32[2]:1,2",
            )
    return [each.array() for each in args]


def call_exported(
    client: Client,
    function: ExportedFunction,
    args: Sequence[arguments.Argument],
    *,
    isolated: bool,
) -> tuple[Buffer, ...]:
    """Call an exported function, and wait for every result."""
    from pjrt_hub.frameworks.exported.assignment import assign

    with _usage_errors(lambda: "`pjrt-hub inspect` prints the name and type of each argument"):
        positional, named = assign(function, [(each.place, each.value) for each in args])
        result = pjrt_hub.Exported(function, client, isolated=isolated)(*positional, **named)
    results: list[Buffer] = []
    function.out_tree.flatten(result, results, "result")
    for each in results:
        each.ready.wait()
    return tuple(results)


@contextmanager
def _usage_errors(hint: Callable[[], str]) -> Iterator[None]:
    """Turn a TypeError or ValueError of the library into a PjrtHubError with this hint."""
    try:
        yield
    except (TypeError, ValueError) as exc:
        if isinstance(exc, PjrtHubError):
            raise
        raise PjrtHubError(str(exc).partition("\n\n")[0], hint=hint()) from None


def call(
    client: Client, executable: LoadedExecutable, args: Sequence[NDArray[Any]], program: Program
) -> tuple[Buffer, ...]:
    """Move the arguments to the device, call, and wait for every result."""
    with _usage_errors(partial(_words, program)):
        buffers = [client.buffer_from_host(array) for array in args]
        results: tuple[Buffer, ...] = executable(*buffers, simplify=False)
    for result in results:
        result.ready.wait()
    return results


def _words(program: Program) -> str:
    """Say with which arguments a program can be called."""
    signature = pjrt_hub.signature(program)
    if signature is None:
        return "give each --arg the type and shape that the program takes, such as f32[2]:1,2"
    takes = " ".join(f"--arg '{each}:0'" for each in signature.parameters)
    return f"it takes {takes}, with your values" if takes else "omit --arg: it takes none"


def write(results: Sequence[Buffer], out: Path) -> list[Path]:
    """Write the only result to the .npy file `out`, or each result into the folder `out`."""
    import numpy as np

    if out.suffix == ".npy":
        if len(results) != 1:
            raise PjrtHubError(
                f"{out} is one file and the program has {len(results)} results",
                hint=f"name a directory: --output {out.with_suffix('')}",
            )
        paths = [out]
    else:
        paths = [out / f"{number}.npy" for number in range(len(results))]
    for result, path in zip(results, paths, strict=True):
        array = result.to_numpy()
        # numpy.save would keep the bytes of ml_dtypes, but lose the type.
        if array.dtype.kind == "V":
            raise PjrtHubError(
                f"a .npy file cannot name the type {array.dtype} of {path.stem}",
                hint="omit --output, or convert the result in the program",
            )
        if path != out:
            out.mkdir(exist_ok=True)
        np.save(path, array)
    return paths


def as_dict(result: Buffer) -> dict[str, Any]:
    """Return the documented JSON of one result: a complex number is [real, imaginary]."""
    array = result.to_numpy()
    if array.dtype.kind == "c":
        array = array.view(array.real.dtype).reshape((*array.shape, 2))
    if array.dtype.kind == "V":  # These are the short types of ml_dtypes.
        array = array.astype(int if "int" in array.dtype.name else float)
    return {
        "dtype": result.dtype.name,
        "element_type": result.element_type,
        "shape": list(result.shape),
        "data": finite(array),
    }


def finite(array: NDArray[Any]) -> Any:
    """Return the array as nested lists; JSON has no NaN or infinity, so they become strings."""
    import numpy as np

    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    names = np.where(np.isnan(array), "NaN", np.where(array > 0, "Infinity", "-Infinity"))
    return np.where(np.isfinite(array), array.astype(object), names).tolist()
