"""The one table of the environment variables that are read here.

Owns their names, meanings and defaults, and which of them an elevated process may use;
docs/variables.md is made of it. Must not read any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from pjrt_hub.base.frozen import frozen


@frozen
class Variable:
    """One environment variable, or a family of them.

    Attributes:
        name: a `*` stands for any rest.
        meaning: what it changes.
        default: what holds without it, as text.
        reader: who reads it: "pjrt-hub", or the library or program that is asked.
        safe: whether a process uses it that runs with more rights than its caller.
    """

    name: str
    meaning: str
    default: str = ""
    reader: str = "pjrt-hub"
    safe: bool = False


OURS = (
    Variable(
        "PJRT_HUB_PLATFORMS",
        "what to use where the program names nothing: plugins, platforms or aliases, joined by "
        "commas",
        "`JAX_PLATFORMS`, else the best plugin whose hardware is there",
    ),
    Variable(
        "PJRT_HUB_PLUGIN_PATH",
        "plugins to add, joined as in `PATH`: absolute paths of libraries, of folders with a "
        "`pjrt_plugin.toml`, or of folders of libraries; `name=path` gives a name",
    ),
    Variable(
        "PJRT_HUB_CACHE",
        "the folder of fetched plugins",
        "`pjrt-hub` in the user's cache directory",
    ),
    Variable(
        "PJRT_HUB_CACHE_NBYTES",
        "what the folder of fetched plugins may take, in bytes; the least recently used go first",
        "no bound",
    ),
    Variable(
        "PJRT_HUB_SYSTEM_CACHE",
        "folders of fetched plugins that are only read, looked at after the user's own, joined as "
        "in `PATH`",
        "`/usr/local/share/pjrt-hub:/usr/share/pjrt-hub`",
    ),
    Variable(
        "PJRT_HUB_MIRRORS",
        "folders or addresses to fetch from first, joined by commas; the bytes are pinned "
        "wherever they come from",
    ),
    Variable("PJRT_HUB_OFFLINE", "`1` uses no network, as `offline=True` and `--offline` do"),
    Variable("PJRT_HUB_DOWNLOAD_SECONDS", "how long one download may take as a whole"),
    Variable(
        "PJRT_HUB_LOCK",
        "the lock file, outside of which nothing is fetched or loaded, and whose rows stand for "
        "the registry's; `0` for none",
        "the nearest `pjrt-hub.lock` from the working directory upward",
    ),
    Variable("PJRT_HUB_REGISTRY", "the address of a signed registry beside the shipped one"),
    Variable("PJRT_HUB_REGISTRY_ROOT", "the file with the root keys of that registry"),
    Variable("PJRT_HUB_PROBE_SECONDS", "how long the first contact with a library may take", "30"),
    Variable(
        "PJRT_HUB_COMPILE_CACHE",
        "`1` keeps compiled programs without `cache=True`; a path keeps them there, `0` does not",
        "only with `cache=True`, in the folder of fetched plugins",
    ),
    Variable(
        "PJRT_HUB_ISOLATE",
        "`1` compiles in processes of their own without `isolated=True`; `0` does not, also where "
        "that is the default",
        "only with `isolated=True`, in `pjrt-hub run` and in `load_exported`",
    ),
    Variable(
        "PJRT_HUB_ISOLATE_SECONDS",
        "how long a compilation in a process of its own may take",
        "86400",
    ),
    Variable(
        "PJRT_HUB_COMPILE_CACHE_NBYTES",
        "what the compiled programs may take, in bytes",
        "2147483648",
    ),
    Variable(
        "PJRT_HUB_DEBUG",
        "prints each step with its reason: `all`, or some of `discovery`, `store`, `probe`, "
        "`runtime`, joined by commas; on the command line tracebacks too",
    ),
    Variable(
        "PJRT_HUB_JAX",
        "what to register in JAX: plugins, platforms or aliases, joined by commas, the default "
        "first; `name=platform` gives a name in JAX",
        "nothing",
    ),
    Variable(
        "PJRT_HUB_LAYERS",
        "what calls to plugins go through: some of `trace`, `validate`, `pad`, `without`, joined "
        "by commas; `pjrt-hub trace` sets it",
        reader="pjrt-hub, its library for `LD_PRELOAD`",
    ),
    Variable(
        "PJRT_HUB_TORCH_XLA",
        "what torch_xla's device PJRTHUB is: a plugin, platform or alias, and create options, as "
        "in `cpu;cpu_device_count=4`",
        "pjrt-hub's choice",
    ),
    Variable(
        "PJRT_HUB_TRACE",
        "the folder to which `trace` records; without it `validate` reports to stderr",
        reader="pjrt-hub, its library for `LD_PRELOAD`",
    ),
    Variable(
        "PJRT_HUB_TRACE_NBYTES",
        "what one process may record, in bytes",
        "4294967296",
        reader="the library of the layers",
    ),
    Variable(
        "PJRT_HUB_WITHOUT",
        "what the layer `without` takes away from plugins: functions, which then answer "
        "UNIMPLEMENTED, functions with `:null` and extensions, joined by commas",
        reader="pjrt-hub, its library for `LD_PRELOAD`",
    ),
    Variable(
        "PJRT_HUB_CAPTURE",
        "`1` turns what plugins write to stderr into records of the logger `pjrt_hub.native`",
    ),
)

CHOICE = (
    Variable("JAX_PLATFORMS", "as `PJRT_HUB_PLATFORMS`, after it; nothing is stripped, as in JAX"),
    Variable(
        "PJRT_NAMES_AND_LIBRARY_PATHS",
        "plugins to add: `name:path,name:path`; the path of a `.json` file gives `library_path` "
        "and `create_options`",
    ),
    Variable("TPU_LIBRARY_PATH", "the path of libtpu, before an installed one"),
    Variable(
        "LD_LIBRARY_PATH",
        "where the loader looks for the libraries that a plugin needs, which is checked first",
        reader="pjrt-hub, the loader",
    ),
    Variable(
        "LD_PRELOAD",
        "stays beside what `pjrt-hub trace` and the reference plugin preload into a process",
        reader="pjrt-hub, the loader",
    ),
    Variable("PYTHONPATH", "is handed on to the process of the first contact", reader="Python"),
)

NETWORK = (
    Variable("PIP_*", "pip's configuration: indexes, certificates, proxy", reader="pjrt-hub, pip"),
    Variable("UV_*", "uv's configuration: indexes and files", reader="pjrt-hub, uv"),
    Variable("HTTP_PROXY", "the proxy for http", reader="httpx"),
    Variable("HTTPS_PROXY", "the proxy for https", reader="httpx"),
    Variable("ALL_PROXY", "the proxy where none of these is set", reader="httpx"),
    Variable("NO_PROXY", "hosts that are reached without a proxy", reader="httpx"),
    Variable(
        "SSL_CERT_FILE", "certificate authorities to trust, after `PIP_CERT`", "those of certifi"
    ),
    Variable("SSL_CERT_DIR", "a folder of them"),
    Variable("SSL_CLIENT_CERT", "a client certificate with its key, after `PIP_CLIENT_CERT`"),
    Variable("NETRC", "the file of users and passwords", "`.netrc` in the home folder"),
    Variable("PATH", "where `pip`, `uv` and `keyring` are looked for"),
)

FOLDERS = (
    Variable("HOME", "where `.netrc`, uv's files and the user's cache directory are"),
    Variable("XDG_CACHE_HOME", "the user's cache directory", "`~/.cache`", "platformdirs"),
    Variable("XDG_CONFIG_HOME", "where uv's and pip's files of the user are", "`~/.config`"),
    Variable("XDG_CONFIG_DIRS", "where those of the machine are", "`/etc`"),
)

#: Another value may give another program, so each is part of a compiled program's key. What only
#: logs, dumps or speeds up compiling is left out.
COMPILERS = tuple(
    Variable(name, "part of the key of a compiled program", reader="pjrt-hub, the plugin")
    for name in (
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDA_ROOT",
        "CUDNN_ERRATA_JSON_FILE",
        "LIBTPU_INIT_ARGS",
        "LLVM_PASS_PLUGIN_PATH",
        "NVIDIA_TF32_OVERRIDE",
        "TF_ENABLE_WINOGRAD_NONFUSED",
        "TF_FP16_CONV_USE_FP32_COMPUTE",
        "TF_FP16_RNN_USE_FP32_COMPUTE",
        "TF_USE_CUBLASLT",
        "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT",
        "TF_USE_ROCM_NHWC",
        "TF_XLA_FLAGS",
        "TPU_MEGACORE",
        "TRITON_DEFAULT_FP_FUSION",
        "TRITON_F32_DEFAULT",
        "TRITON_FORCE_DISABLE_FP_FUSION",
        "TRITON_OVERRIDE_ARCH",
        "XLA_FLAGS",
    )
)

TERMINAL = (
    Variable("NO_COLOR", "no colours in tables and progress bars", reader="rich", safe=True),
    Variable("FORCE_COLOR", "colours also where no terminal is", reader="rich", safe=True),
    Variable("TERM", "what the terminal can do", reader="rich", safe=True),
    Variable("COLUMNS", "how wide it is", reader="rich", safe=True),
    Variable("LINES", "how high it is", reader="rich", safe=True),
)

PACKAGING = (
    Variable(
        "SOURCE_DATE_EPOCH",
        "the date of the files in a wheel that `pack` writes, in seconds since 1970",
        "1577836800",
    ),
)

#: The groups, by the heading that they have in docs/variables.md.
GROUPS = {
    "Ours": OURS,
    "Which plugin": CHOICE,
    "How the network is reached": NETWORK,
    "Where files are": FOLDERS,
    "Compilers": COMPILERS,
    "Terminals": TERMINAL,
    "Packaging": PACKAGING,
}


def rows() -> Iterator[Variable]:
    """Every row."""
    for group in GROUPS.values():
        yield from group


def find(name: str) -> Variable | None:
    """The row of a variable, or None: it must not be read."""
    return next((row for row in rows() if fnmatchcase(name, row.name)), None)


def is_safe(name: str) -> bool:
    """Whether a process with more rights than its caller may use the variable."""
    row = find(name)
    return row is not None and row.safe
