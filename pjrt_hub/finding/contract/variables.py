"""The table of all environment variables that pjrt-hub reads.

Owns their names, meanings and defaults, and which of them an elevated process may use;
docs/variables.md is generated from it. Must not read any of them from the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple


class Variable(NamedTuple):
    """One environment variable, or a family of them."""

    name: str  # A `*` stands for any ending.
    meaning: str  # What the variable changes.
    default: str = ""  # What applies if it is not set, as text.
    reader: str = "pjrt-hub"  # What reads it: pjrt-hub, or a library or program that this calls.
    safe: bool = False  # Whether a process with more rights than its caller uses it.


OURS = (
    Variable(
        "PJRT_HUB_PLATFORMS",
        "what to use if the program names nothing: plugins, platforms or aliases, separated by "
        "commas",
        "`JAX_PLATFORMS`, else the best plugin whose hardware is present",
    ),
    Variable(
        "PJRT_HUB_PLUGIN_PATH",
        "plugins to add, separated as in `PATH`: absolute paths of libraries, of folders with a "
        "`pjrt_plugin.toml`, or of folders of libraries; `name=path` names the plugin",
    ),
    Variable(
        "PJRT_HUB_SELECT",
        "the only plugins to use: names, separated by commas, in which `*` stands for anything",
    ),
    Variable("PJRT_HUB_DISABLE", "plugins not to use, in the same form; `PJRT_HUB_SELECT` wins"),
    Variable(
        "PJRT_HUB_CACHE",
        "the folder of fetched plugins",
        "`pjrt-hub` in the user's cache directory",
        reader="pjrt-hub, its library for `LD_PRELOAD`",
    ),
    Variable(
        "PJRT_HUB_CACHE_NBYTES",
        "the limit of that folder, in bytes; beyond it the least recently used are removed",
        "no limit",
    ),
    Variable(
        "PJRT_HUB_SYSTEM_CACHE",
        "read-only folders of fetched plugins, searched after the user's own, separated as in "
        "`PATH`",
        "`/usr/local/share/pjrt-hub:/usr/share/pjrt-hub`",
    ),
    Variable(
        "PJRT_HUB_MIRRORS",
        "folders or addresses to fetch from first, separated by commas; the bytes are pinned "
        "wherever they come from",
    ),
    Variable("PJRT_HUB_OFFLINE", "`1` uses no network, as `offline=True` and `--offline` do"),
    Variable("PJRT_HUB_DOWNLOAD_SECONDS", "the time limit of a download, all sources together"),
    Variable(
        "PJRT_HUB_LOCK",
        "the lock file, which lists all plugins that may be fetched or loaded and replaces the "
        "registry; `0` for none",
        "the nearest `pylock.pjrt.toml` from the working directory upward",
    ),
    Variable("PJRT_HUB_PROBE_SECONDS", "the time limit of the first contact with a library", "30"),
    Variable(
        "PJRT_HUB_COMPILE_CACHE",
        "`1` caches all compiled programs, a path does so in that folder, `0` does not",
        "only with `cache=True`, in the folder of fetched plugins",
        reader="pjrt-hub, its library for `LD_PRELOAD`",
    ),
    Variable(
        "PJRT_HUB_ISOLATE",
        "`1` compiles every program in a separate process; `0` does not, even where that is the "
        "default",
        "only with `isolated=True`, in `pjrt-hub run` and in `load_exported`",
    ),
    Variable(
        "PJRT_HUB_ISOLATE_SECONDS", "the time limit of a compilation in a separate process", "86400"
    ),
    Variable(
        "PJRT_HUB_COMPILE_CACHE_NBYTES",
        "the limit of the cached compiled programs, in bytes",
        "2147483648",
    ),
    Variable(
        "PJRT_HUB_DEBUG",
        "prints each step with its reason: `all`, or some of `discovery`, `store`, `probe`, "
        "`runtime`, separated by commas; tracebacks then show frames of pjrt-hub",
    ),
    Variable(
        "PJRT_HUB_DISCRETE",
        "settings of the layer `discrete`, separated by commas: `seed=7`, `window=8`, "
        "`capacity=64MiB`, `platform=tpu`, `silence=100`, `hold`, `prompt`, `tiled`",
        reader="pjrt-hub, its library for `LD_PRELOAD`",
    ),
    Variable(
        "PJRT_HUB_JAX",
        "what to register in JAX: plugins, platforms or aliases, separated by commas, the "
        "default first; `name=platform` sets the name in JAX",
        "nothing",
    ),
    Variable(
        "PJRT_HUB_LAYERS",
        "the layers of calls to plugins: some of `trace`, `device`, `validate`, `pad`, `cache`, "
        "`options`, `without`, `discrete`, separated by commas; `pjrt-hub trace` sets it",
        reader="pjrt-hub, its library for `LD_PRELOAD`",
    ),
    Variable(
        "PJRT_HUB_OPTIONS",
        "what the layer `options` gives a plugin in place of the host's create options, separated "
        "by semicolons: names, of which the host's pass, and values, as in `num_nodes;timeout=4`",
        reader="pjrt-hub, its library for `LD_PRELOAD`",
    ),
    Variable(
        "PJRT_HUB_TORCH",
        "the plugin, platform or alias that `import torch` makes TorchTPU's device, with create "
        "options as in `cpu;cpu_device_count=1`",
    ),
    Variable(
        "PJRT_HUB_TORCH_XLA",
        "the plugin, platform or alias of torch_xla's device PJRTHUB, with create options as in "
        "`cpu;cpu_device_count=4`",
        "pjrt-hub's choice",
    ),
    Variable(
        "PJRT_HUB_TRACE",
        "the folder for recordings of `trace`; without it `validate` reports to stderr",
        reader="pjrt-hub, its library for `LD_PRELOAD`",
    ),
    Variable(
        "PJRT_HUB_TRACE_NBYTES",
        "the limit of one process's recording, in bytes",
        "4294967296",
        reader="the library of the layers",
    ),
    Variable(
        "PJRT_HUB_WITHOUT",
        "what the layer `without` hides: functions, which then answer UNIMPLEMENTED, functions "
        "with `:null` and extensions, separated by commas",
        reader="pjrt-hub, its library for `LD_PRELOAD`",
    ),
    Variable(
        "PJRT_HUB_BUFFER_ORIGINS",
        "`1` records the line that makes each buffer, and when, for `client.memory_report()` and "
        "for errors when memory runs out; each buffer then takes a few microseconds longer",
    ),
    Variable(
        "PJRT_HUB_CAPTURE",
        "`1` turns what plugins write to stderr into records of the logger `pjrt_hub.native`",
    ),
)

CHOICE = (
    Variable(
        "JAX_PLATFORMS", "as `PJRT_HUB_PLATFORMS`, if that is not set; spaces count, as in JAX"
    ),
    Variable(
        "PJRT_NAMES_AND_LIBRARY_PATHS",
        "plugins to add: `name:path,name:path`; the path of a `.json` file gives `library_path` "
        "and `create_options`",
    ),
    Variable(
        "PJRT_PLUGIN_MANIFESTS",
        "folders of [manifests](spec/manifest.md) before the standard ones, separated as in `PATH`",
    ),
    Variable("TPU_LIBRARY_PATH", "the path of libtpu, before an installed one"),
    Variable(
        "LD_LIBRARY_PATH",
        "where the loader searches the libraries that a plugin needs, which pjrt-hub checks first",
        reader="pjrt-hub, the loader",
    ),
    Variable(
        "LD_PRELOAD",
        "libraries to preload; `pjrt-hub trace` and the reference plugin add theirs",
        reader="pjrt-hub, the loader",
    ),
    Variable(
        "CUDA_VISIBLE_DEVICES",
        "the GPUs that programs see; `pjrt-hub doctor` warns where it hides all of them",
        "all",
        "CUDA, pjrt-hub",
    ),
    Variable("PYTHONPATH", "passed on to the process of the first contact", reader="Python"),
)

#: Manifests name these as the `variables` of an option; vendors may name others.
CREATE_OPTIONS = (
    Variable("JAX_NUM_CPU_DEVICES", "the option `cpu_device_count` of the CPU plugin, as in JAX"),
    Variable("XLA_PYTHON_CLIENT_PREALLOCATE", "the option `preallocate` of GPUs, as in JAX"),
    Variable("XLA_CLIENT_MEM_FRACTION", "their option `memory_fraction`, as in JAX"),
    Variable("XLA_PYTHON_CLIENT_MEM_FRACTION", "the same, if that is not set"),
    Variable("XLA_PYTHON_CLIENT_ALLOCATOR", "their option `allocator`, as in JAX"),
)

NETWORK = (
    Variable("PIP_*", "pip's configuration: indexes, certificates, proxy", reader="pjrt-hub, pip"),
    Variable("UV_*", "uv's configuration: indexes and files", reader="pjrt-hub, uv"),
    Variable("HTTP_PROXY", "the proxy for http", reader="httpx"),
    Variable("HTTPS_PROXY", "the proxy for https", reader="httpx"),
    Variable("ALL_PROXY", "the proxy if neither of these is set", reader="httpx"),
    Variable("NO_PROXY", "hosts to reach without a proxy", reader="httpx"),
    Variable(
        "SSL_CERT_FILE", "certificate authorities to trust, after `PIP_CERT`", "those of certifi"
    ),
    Variable("SSL_CERT_DIR", "a folder of certificate authorities"),
    Variable("SSL_CLIENT_CERT", "a client certificate with its key, after `PIP_CLIENT_CERT`"),
    Variable("NETRC", "the file of users and passwords", "`.netrc` in the home folder"),
    Variable("PATH", "where to look for `pip`, `uv` and `keyring`"),
)

FOLDERS = (
    Variable("HOME", "where `.netrc`, uv's files and the user's cache directory are"),
    Variable("XDG_CACHE_HOME", "the user's cache directory", "`~/.cache`", "platformdirs"),
    Variable("XDG_CONFIG_HOME", "the user's manifests, and settings of uv and pip", "`~/.config`"),
    Variable(
        "XDG_DATA_HOME",
        "the store of what `pjrt-hub install` installs for a user",
        "`~/.local/share`",
    ),
    Variable("XDG_CONFIG_DIRS", "the folders of the machine's settings", "`/etc`"),
    Variable("VIRTUAL_ENV", "the environment in whose `etc` and `share` installed plugins are"),
    Variable("CONDA_PREFIX", "the same of conda"),
    Variable("APPDATA", "the folder of the user's manifests on Windows"),
    Variable("PROGRAMDATA", "the folder of the machine's manifests on Windows"),
)

#: These may change the result of a compilation, so they are part of a compiled program's key.
#: Variables that only affect logs, dumps or the speed of compiling are left out.
COMPILERS = tuple(
    Variable(name, "part of the key of a compiled program", reader="pjrt-hub, the plugin")
    for name in (
        *("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDNN_ERRATA_JSON_FILE", "LIBTPU_INIT_ARGS"),
        *("LLVM_PASS_PLUGIN_PATH", "NVIDIA_TF32_OVERRIDE", "TF_ENABLE_WINOGRAD_NONFUSED"),
        *("TF_FP16_CONV_USE_FP32_COMPUTE", "TF_FP16_RNN_USE_FP32_COMPUTE", "TF_USE_CUBLASLT"),
        *("TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT", "TF_USE_ROCM_NHWC", "TF_XLA_FLAGS"),
        *("TPU_MEGACORE", "TRITON_DEFAULT_FP_FUSION", "TRITON_F32_DEFAULT"),
        *("TRITON_FORCE_DISABLE_FP_FUSION", "TRITON_OVERRIDE_ARCH", "XLA_FLAGS"),
    )
)

TERMINAL = (
    Variable("NO_COLOR", "no colours in tables and progress bars", reader="rich", safe=True),
    Variable("FORCE_COLOR", "colours even without a terminal", reader="rich", safe=True),
    Variable("TERM", "the kind of terminal", reader="rich", safe=True),
    Variable("COLUMNS", "its width", reader="rich", safe=True),
    Variable("LINES", "its height", reader="rich", safe=True),
)

PACKAGING = (
    Variable(
        "SOURCE_DATE_EPOCH",
        "the date of files in wheels by `pack`, in seconds since 1970",
        "1577836800",
    ),
)

#: The groups of variables, by their headings in docs/variables.md.
GROUPS = {
    "Variables of pjrt-hub": OURS,
    "Which plugin": CHOICE,
    "Create options of clients": CREATE_OPTIONS,
    "How the network is reached": NETWORK,
    "Where files are": FOLDERS,
    "Compilers": COMPILERS,
    "Terminals": TERMINAL,
    "Packaging": PACKAGING,
}


def rows() -> Iterator[Variable]:
    """Yield every row."""
    for group in GROUPS.values():
        yield from group


def find(name: str) -> Variable | None:
    """Return the row of a variable, or None if the variable must not be read."""
    return next((row for row in rows() if fnmatchcase(name, row.name)), None)


def is_on(env: Mapping[str, str], name: str) -> bool:
    """Check whether a variable that is `1` or `0` is set to anything but `0`."""
    return env.get(name, "") not in ("", "0")


def is_safe(name: str) -> bool:
    """Check whether a process with more rights than its caller may use the variable."""
    row = find(name)
    return row is not None and row.safe
