"""Folders, files and links, their owners, libraries, hardware, and plugins that are disabled."""

from __future__ import annotations

from collections.abc import Iterator

from manifest_trees import FOREIGN, HEAD, TOY, USABLE, Case, File, Files, one, toy, usable

LIB = {"lib/toy.so": b""}
#: Every variable that names a folder, and where that is.
PLACES = {
    "PJRT_PLUGIN_MANIFESTS": ("{root}/a", "a"),
    "VIRTUAL_ENV": ("{root}/b", "b/etc/pjrt/plugins"),
    "CONDA_PREFIX": ("{root}/c", "c/etc/pjrt/plugins"),
    "XDG_CONFIG_HOME": ("{root}/d", "d/pjrt/plugins"),
    "HOME": ("{root}/e", "e/.config/pjrt/plugins"),
}
NOT_ABSOLUTE = "it is not an absolute path"
NOBODY = f"it belongs to user {FOREIGN}"
ANYBODY = "everybody may write to it"
GROUP = "its group may write to it"


def folder_cases() -> Iterator[Case]:
    for variable, (value, folder) in PLACES.items():
        files = {f"{folder}/toy.toml": TOY, **LIB}
        yield Case(f"folder: {variable}", files, (USABLE,), {variable: value})
        yield Case(f"folder: {variable} is empty", files, (), {variable: ""})
        yield Case(f"folder: {variable} leads nowhere", LIB, (), {variable: value})
        relative = value.removeprefix("{root}/")
        told = folder.removesuffix("/toy.toml")
        line = f"refused {told} {NOT_ABSOLUTE}"
        yield Case(f"folder: {variable} is relative", files, (line,), {variable: relative})
    every = {variable: value for variable, (value, _) in PLACES.items()}
    one_each = {
        f"{folder}/toy{at}.toml": toy(f"toy{at}") for at, (_, folder) in enumerate(PLACES.values())
    }
    lines = [usable(f"toy{at}") for at in range(len(PLACES))]
    yield Case("folder: all in their order", {**one_each, **LIB}, tuple(lines[:4]), every)
    same = {f"{folder}/toy.toml": TOY for _, folder in PLACES.values()}
    hidden = [f"hidden toy {{root}}/{folder}/toy.toml" for _, folder in PLACES.values()][1:4]
    yield Case(
        "folder: the first of a name hides the others", {**same, **LIB}, (USABLE, *hidden), every
    )
    both = {"XDG_CONFIG_HOME": "", "HOME": "{root}/e"}
    files = {f"{PLACES['HOME'][1]}/toy.toml": TOY, **LIB}
    yield Case("folder: HOME, where XDG_CONFIG_HOME is empty", files, (USABLE,), both)
    both = {"XDG_CONFIG_HOME": "d", "HOME": "{root}/e"}
    line = f"refused d/pjrt/plugins {NOT_ABSOLUTE}"
    yield Case("folder: not HOME, where XDG_CONFIG_HOME is relative", files, (line,), both)

    def several(name: str, text: str, files: Files, *lines: str) -> Case:
        return Case(f"folders: {name}", {**files, **LIB}, lines, {"PJRT_PLUGIN_MANIFESTS": text})

    two: Files = {"a/toy1.toml": toy("toy1"), "b/toy2.toml": toy("toy2")}
    yield several("two", "{root}/a:{root}/b", two, usable("toy1"), usable("toy2"))
    yield several("the other way round", "{root}/b:{root}/a", two, usable("toy2"), usable("toy1"))
    yield several("empty parts", ":{root}/a::{root}/b:", two, usable("toy1"), usable("toy2"))
    yield several("only colons", "::", two)
    yield several(
        "one of them relative", "a:{root}/b", two, f"refused a {NOT_ABSOLUTE}", usable("toy2")
    )
    yield several("a dot", ".:{root}/b", two, f"refused . {NOT_ABSOLUTE}", usable("toy2"))
    yield several("a tilde", "~/a", two, f"refused ~/a {NOT_ABSOLUTE}")
    yield several("one is not there", "{root}/x:{root}/b", two, usable("toy2"))
    yield several(
        "one of them twice", "{root}/a:{root}/b:{root}/a", two, usable("toy1"), usable("toy2")
    )
    linked: Files = {**two, "c": File(link="{root}/a")}
    for name, again in (("by a link", "{root}/c"), ("over a folder", "{root}/b/../a")):
        text = f"{{root}}/a:{again}:{{root}}/b"
        yield several(f"one of them twice, {name}", text, linked, usable("toy1"), usable("toy2"))
        text = f"{again}:{{root}}/b:{{root}}/a"
        yield several(f"one of them first {name}", text, linked, usable("toy1"), usable("toy2"))
    yield Case(
        "folder: a level's, named by a link",
        {"b/etc/pjrt/plugins/toy.toml": TOY, "c": File(link="b/etc/pjrt/plugins"), **LIB},
        (USABLE,),
        {"PJRT_PLUGIN_MANIFESTS": "{root}/c", "VIRTUAL_ENV": "{root}/b"},
    )
    yield several(
        "a file",
        "{root}/lib/toy.so",
        {},
        "refused {root}/lib/toy.so cannot be read: Not a directory",
    )
    yield several(
        "below a file",
        "{root}/lib/toy.so/a",
        {},
        "refused {root}/lib/toy.so/a cannot be read: Not a directory",
    )
    yield several(
        "a link to a folder", "{root}/c", {**two, "c": File(link="{root}/a")}, usable("toy1")
    )
    yield several(
        "a link to itself",
        "{root}/c",
        {"c": File(link="c")},
        "refused {root}/c cannot be read: Too many levels of symbolic links",
    )
    yield several("a link to nowhere", "{root}/c", {"c": File(link="x")})
    yield several("an empty folder", "{root}/c", {"c": File(kind="folder", mode=0o755)})
    bad: Files = {"a/toy.toml": "a", "b/toy.toml": TOY}
    yield several(
        "a refused manifest hides, too",
        "{root}/a:{root}/b",
        bad,
        "refused {root}/a/toy.toml line 1: expected =",
        "hidden toy {root}/b/toy.toml",
    )
    absent: Files = {"a/toy.toml": HEAD + "[[library]]\npath = '{root}/x.so'", "b/toy.toml": TOY}
    yield several(
        "an absent one hides, too",
        "{root}/a:{root}/b",
        absent,
        "absent toy {root}/x.so is not a file",
        "hidden toy {root}/b/toy.toml",
    )
    odd: Files = {"a/toy.toml": File(kind="folder", mode=0o755), "b/toy.toml": TOY}
    yield several("what is no file hides nothing", "{root}/a:{root}/b", odd, USABLE)
    closed: Files = {"a/toy.toml": TOY, "a": File(kind="folder", mode=0o777), "b/toy.toml": TOY}
    yield several(
        "a refused folder hides nothing",
        "{root}/a:{root}/b",
        closed,
        f"refused {{root}}/a {ANYBODY}",
        USABLE,
    )


def name_cases() -> Iterator[Case]:
    names = ["10", "2", "_", "a", "a_b", "b", "z9", "z" * 32]
    files = {f"m/{name}.toml": toy(name) for name in reversed(names)}
    lines = [usable(name) for name in names]
    yield Case("name: the order of bytes", {**files, **LIB}, tuple(lines))
    odd = [
        "Toy.toml",
        "toy.TOML",
        "toy.toml.bak",
        "toy.toml~",
        "a.b.toml",
        ".toml",
        ".toy.toml",
        "a-b.toml",
    ]
    odd += [
        "a b.toml",
        "é.toml",
        "toy",
        f"{'z' * 33}.toml",
        "toy.tom",
        "toytoml",
        " toy.toml",
        "toy.toml ",
    ]
    yield Case("name: what is no name", {**{f"m/{name}": TOY for name in odd}, **LIB}, ())
    many = {f"m/p{at:03}.toml": toy(f"p{at:03}") for at in range(257)}
    line = "refused {root}/m it holds more than 256 manifests"
    yield Case("name: 257 manifests", {**many, **LIB}, (line,))
    more = {**many, **{f"m/p{at:03}.toml": toy(f"p{at:03}") for at in range(257, 300)}}
    yield Case("name: 300 manifests", {**more, **LIB}, (line,))
    many.pop("m/p256.toml")
    lines = [usable(f"p{at:03}") for at in range(256)]
    yield Case("name: 256 manifests", {**many, **LIB}, tuple(lines))
    others = {f"m/p{at:03}.txt": "a" for at in range(300)}
    yield Case("name: 300 other files", {**others, "m/toy.toml": TOY, **LIB}, (USABLE,))
    yield Case("name: a folder below", {"m/toy.toml/toy.toml": TOY, "m/a/toy.toml": TOY, **LIB}, ())
    yield Case("name: a FIFO", {"m/toy.toml": File(kind="fifo"), **LIB}, ())
    yield Case(
        "name: a link to a FIFO",
        {"m/toy.toml": File(link="{root}/f"), "f": File(kind="fifo"), **LIB},
        (),
    )
    yield Case("name: a link to nothing", {"m/toy.toml": File(link="x"), **LIB}, ())
    yield Case("name: a link to itself", {"m/toy.toml": File(link="toy.toml"), **LIB}, ())
    yield Case("name: a link to a device", {"m/toy.toml": File(link="/dev/zero"), **LIB}, ())
    link = {"m/toy.toml": File(link="../n/other.txt"), "n/other.txt": TOY}
    yield Case("name: a link", {**link, **LIB}, (USABLE,))
    beside = HEAD + "[[library]]\npath = 'toy.so'"
    link = {
        "m/toy.toml": File(link="../n/other.txt"),
        "n/other.txt": beside,
        "n/toy.so": b"",
        "m/toy.so": b"",
    }
    yield Case("name: a path begins where the link leads", link, (USABLE.replace("lib", "n"),))
    chain = {
        "m/toy.toml": File(link="{root}/l"),
        "l": File(link="n/o"),
        "n/o": beside,
        "n/toy.so": b"",
    }
    yield Case("name: a link to a link", chain, (USABLE.replace("lib", "n"),))
    yield Case(
        "name: a link to nothing readable",
        {"m/toy.toml": File(TOY, mode=0), **LIB},
        ("refused {root}/m/toy.toml cannot be read: Permission denied",),
        only="user",
    )


def trust_cases() -> Iterator[Case]:
    def owned(name: str, files: Files, *lines: str, only: str = "") -> Case:
        return Case(f"trust: {name}", files, lines, only=only)

    for what, at, line in (
        ("a folder", "m", "refused {root}/m "),
        ("a manifest", "m/toy.toml", "refused {root}/m/toy.toml "),
        ("a library", "lib/toy.so", "refused {root}/m/toy.toml {root}/lib/toy.so: "),
        ("a preload", "lib/a.so", "refused {root}/m/toy.toml {root}/lib/a.so: "),
    ):
        more = "[[preload]]\nlibraries = ['a.so']\nfolder = '{root}/lib'\n"
        files: Files = {
            "m": File(kind="folder", mode=0o755),
            "m/toy.toml": TOY + more,
            "lib/toy.so": b"",
            "lib/a.so": b"",
        }

        plain = files[at] if isinstance(files[at], File) else File(files[at])

        lines = (USABLE, "preload {root}/lib/a.so")
        for name, mode, owner, group, reason in (
            ("that only its owner may read", 0o600, -1, -1, ""),
            ("that all may read", 0o644, -1, -1, ""),
            ("of all", 0o646, -1, -1, ANYBODY),
            ("of all and the group", 0o666, -1, -1, ANYBODY),
            ("of another user", 0o644, FOREIGN, -1, NOBODY),
            ("of another user and all", 0o666, FOREIGN, -1, NOBODY),
            ("of the owner's group", 0o664, 0, 0, ""),
            ("of another group", 0o664, 0, FOREIGN, GROUP),
            ("that a group may read", 0o640, 0, FOREIGN, ""),
        ):
            altered = {**files, at: plain._replace(mode=mode, owner=owner, group=group)}
            told = (line + reason,) if reason else lines
            yield owned(f"{what} {name}", altered, *told, only="root" * (owner >= 0))
        if at != "m":
            linked = {**files, at: File(link="{root}/away/file")}
            for name, mode, told in (
                ("to what is fine", 0o644, lines),
                ("to what is of all", 0o666, (line + ANYBODY,)),
            ):
                away = {"away/file": plain._replace(mode=mode)}
                yield owned(f"{what}, a link {name}", {**linked, **away}, *told)
    sticky: Files = {"m": File(kind="folder", mode=0o1777), "m/toy.toml": TOY, **LIB}
    yield owned("a folder like /tmp", sticky, f"refused {{root}}/m {ANYBODY}")
    broken = {"m/toy.toml": File("a", mode=0o666), **LIB}
    yield owned(
        "a manifest is not read before it is trusted",
        broken,
        f"refused {{root}}/m/toy.toml {ANYBODY}",
    )


def library_cases() -> Iterator[Case]:
    def libraries(name: str, lines: str, files: Files, *told: str) -> Case:
        return Case(f"library: {name}", {"m/toy.toml": HEAD + lines, **files}, told)

    def entry(path: str, target: str = "") -> str:
        return f"[[library]]\npath = '{path}'\n" + (f"target = '{target}'\n" if target else "")

    at, other = "{root}/lib/toy.so", "{root}/lib/other.so"
    both: Files = {**LIB, "lib/other.so": b""}
    beside = "usable toy toy 400 present {root}/m/toy.so"
    yield libraries("relative", entry("toy.so"), {"m/toy.so": b""}, beside)
    yield libraries(
        "relative, below",
        entry("a/b/toy.so"),
        {"m/a/b/toy.so": b""},
        beside.replace("m/", "m/a/b/"),
    )
    yield libraries(
        "dots in its name",
        entry("to..y.so"),
        {"m/to..y.so": b""},
        beside.replace("toy.so", "to..y.so"),
    )
    yield libraries(
        "a link", entry(at), {"lib/toy.so": File(link="other.so"), "lib/other.so": b""}, USABLE
    )
    yield libraries("not there", entry("toy.so"), LIB, "absent toy {root}/m/toy.so is not a file")
    yield libraries("a folder", entry("{root}/lib"), LIB, "absent toy {root}/lib is not a file")
    yield libraries(
        "a FIFO", entry(at), {"lib/toy.so": File(kind="fifo")}, f"absent toy {at} is not a file"
    )
    yield libraries(
        "a dangling link",
        entry(at),
        {"lib/toy.so": File(link="x")},
        f"absent toy {at} is not a file",
    )
    yield libraries(
        "a link to itself",
        entry(at),
        {"lib/toy.so": File(link="toy.so")},
        f"absent toy {at} cannot be read: Too many levels of symbolic links",
    )
    yield Case(
        "library: in a folder that this user may not enter",
        {"m/toy.toml": TOY, **LIB, "lib": File(kind="closed", mode=0o600)},
        (f"absent toy {at} cannot be read: Permission denied",),
        only="user",
    )
    yield libraries("below a file", entry(f"{at}/x"), LIB, f"absent toy {at}/x is not a file")
    yield libraries("the first", entry(at) + entry(other), both, USABLE)
    yield libraries("the second, as the first is not there", entry("x.so") + entry(at), LIB, USABLE)
    yield libraries(
        "none of two",
        entry("x.so") + entry("y.so"),
        LIB,
        "absent toy {root}/m/x.so is not a file; {root}/m/y.so is not a file",
    )
    unsafe: Files = {**both, "lib/other.so": File(b"", 0o666)}
    yield libraries(
        "the first is not to be trusted",
        entry(other) + entry(at),
        unsafe,
        f"refused {{root}}/m/toy.toml {other}: {ANYBODY}",
    )
    yield libraries("the second does not matter", entry(at) + entry(other), unsafe, USABLE)
    foreign = entry("b").replace("path", "distribution = 'a'\npath")
    foreign += entry("d").replace("path", "module = 'c'\npath")
    foreign += "[[library]]\nvariable = 'HOME'\n"
    yield libraries("those of packages are passed over", foreign + entry(at), LIB, USABLE)
    for target in (
        "macos-aarch64",
        "windows-x86_64",
        "linux-riscv64",
        "plan9-mips",
        "linux-{arch}-glibc99.0",
        "linux-{arch}-musl1.2",
        "linux-{arch}-musl",
        "linux-{arch}-later",
        f"linux-{{arch}}-{'l' * 31}",
        "linux-amd64",
        "linux-{other}-glibc2.17",
    ):
        told = f"absent toy {at} is for {target}, this machine is {{host}}"
        yield libraries(f"for {target}", entry(at, target), LIB, told)
        yield libraries(
            f"for {target}, and any",
            entry(at, target) + entry(other),
            both,
            USABLE.replace("/toy.so", "/other.so"),
        )
    for target in (
        "linux-{arch}",
        "linux-{arch}-glibc",
        "linux-{arch}-glibc2.0",
        "linux-{arch}-glibc2.17",
        "linux-{arch}-glibc1.9999",
    ):
        yield libraries(f"for {target}", entry(at, target), LIB, USABLE)
    yield libraries(
        "for another machine, and not there",
        entry("x.so", "macos-x86_64") + entry("y.so"),
        LIB,
        "absent toy {root}/m/x.so is for macos-x86_64, this machine is {host}; "
        "{root}/m/y.so is not a file",
    )

    def before(name: str, text: str, *told: str) -> Case:
        files: Files = {
            "m/toy.toml": TOY + text,
            **LIB,
            "lib/a.so": b"",
            "lib/b.so": b"",
            "m/lib/c.so": b"",
        }
        return Case(f"preload: {name}", files, (USABLE, *told))

    def entry_before(*names: str, folder: str = "{root}/lib") -> str:
        return f"[[preload]]\nlibraries = {list(names)}\nfolder = '{folder}'\n"

    a, b, c = "preload {root}/lib/a.so", "preload {root}/lib/b.so", "preload {root}/m/lib/c.so"
    yield before("in order", entry_before("b.so", "a.so"), b, a)
    yield before("relative", entry_before("c.so", folder="lib"), c)
    yield before("from lib by default", "[[preload]]\nlibraries = ['c.so']", c)
    yield before("one is not there", entry_before("x.so", "a.so", "."), a)
    packaged = "[[preload]]\nmodule = 'a'\nlibraries = ['b.so']\n"
    yield before("of a package", packaged + entry_before("a.so"), a)
    yield before("several", entry_before("c.so", folder="lib") + entry_before("a.so"), c, a)
    present = "A = { value = '1', when = 'present' }\nB = { value = '2', when = 'absent' }\n"
    for name, text, told in (
        ("sorted", "Z = '1'\nA = \"2\"\n", ("set A=2", "set Z=1")),
        (
            "in tables",
            "A = { value = 'x=y' }\n[environment.B]\nvalue = ''\n",
            ("set A=x=y", "set B="),
        ),
        (
            "of the hardware",
            present + "C = { value = '3', when = 'always' }\n",
            ("set A=1", "set C=3"),
        ),
    ):
        yield one(f"environment: {name}", f"{TOY}[environment]\n{text}", USABLE, *told)
    missing = "[probe]\nkind = 'files'\nfiles = ['/nonexistent/a']\n"
    yield one(
        "environment: without the hardware",
        f"{TOY}{missing}[environment]\n{present}",
        USABLE.replace("present", "absent"),
        "set B=2",
    )


def hardware_cases() -> Iterator[Case]:
    node = "system/sys/class/kfd/kfd/topology/nodes/{}/properties"
    card = "system/sys/bus/pci/devices/0000:00:0{}.0/{}"
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n"
    nvidia = {"system/proc/driver/nvidia/version": version}
    driver = "driver = { file = '/proc/driver/nvidia/version', minimum = %d }"
    pci = {card.format(1, "vendor"): "0x8086\n", card.format(1, "device"): "0x56c0\n"}
    pci |= {card.format(2, "vendor"): "0x1ae0\n", card.format(2, "device"): "0x0063\n"}
    gpu, cpu = "simd_count 256\nmem 1\n", "cpu_cores_count 8\nsimd_count 0\n"
    for name, probe, files, there in (
        ("no probe", "", {}, True),
        ("always", "kind = 'always'", {}, True),
        ("a device", "kind = 'files'\nfiles = ['/dev/a']", {"system/dev/a": ""}, True),
        ("no device", "kind = 'files'\nfiles = ['/dev/a']", {"system/dev/b": ""}, False),
        (
            "the second device",
            "kind = 'files'\nfiles = ['/dev/a', '/dev/b']",
            {"system/dev/b": ""},
            True,
        ),
        ("an AMD node", "kind = 'kfd'", {node.format(0): cpu, node.format(1): gpu}, True),
        ("only a CPU as AMD node", "kind = 'kfd'", {node.format(0): cpu}, False),
        ("no AMD node", "kind = 'kfd'", {}, False),
        ("a vendor", "kind = 'pci'\nvendor = '0x1ae0'", pci, True),
        ("a vendor in capitals", "kind = 'pci'\nvendor = '0x1AE0'", pci, True),
        ("another vendor", "kind = 'pci'\nvendor = '0x1002'", pci, False),
        ("no bus", "kind = 'pci'\nvendor = '0x1ae0'", {}, False),
        ("a card", "kind = 'pci'\nvendor = '0x1ae0'\ndevices = ['0x0062', '0x0063']", pci, True),
        ("another card", "kind = 'pci'\nvendor = '0x1ae0'\ndevices = ['0x56c0']", pci, False),
        ("a driver", f"kind = 'files'\nfiles = ['/proc/driver']\n{driver % 550}", nvidia, True),
        (
            "an old driver",
            f"kind = 'files'\nfiles = ['/proc/driver']\n{driver % 551}",
            nvidia,
            False,
        ),
        (
            "no version of a driver",
            f"kind = 'files'\nfiles = ['/dev/a']\n{driver % 551}",
            {"system/dev/a": ""},
            True,
        ),
        ("a driver alone", f"kind = 'always'\n{driver % 551}", nvidia, True),
    ):
        line = USABLE if there else USABLE.replace("present", "absent")
        yield Case(
            f"probe: {name}",
            {"m/toy.toml": f"{TOY}[probe]\n{probe}\n", **LIB, **files},
            (line,),
            system=True,
        )
    etc = {
        "system/etc/pjrt/plugins/toy.toml": TOY,
        "system/etc/pjrt/plugins/zoo.toml": toy("zoo"),
        **LIB,
    }
    yield Case("system: /etc", etc, (USABLE, usable("zoo")), {}, system=True)
    hidden = "hidden toy {root}/system/etc/pjrt/plugins/toy.toml"
    yield Case(
        "system: /etc is last",
        {**etc, "m/toy.toml": TOY},
        (USABLE, hidden, usable("zoo")),
        system=True,
    )
    nowhere = {"HOME": "{root}/e", "VIRTUAL_ENV": "v"}
    line = f"refused v/etc/pjrt/plugins {NOT_ABSOLUTE}"
    yield Case(
        "system: /etc after what is refused",
        etc,
        (line, USABLE, usable("zoo")),
        nowhere,
        system=True,
    )


def disabled_cases() -> Iterator[Case]:
    files = {f"m/{name}.toml": toy(name) for name in ("cpu", "cuda12", "cuda13", "tpu")}
    selected, denied = "PJRT_HUB_SELECT does not name it", "PJRT_HUB_DISABLE names it"
    for select, disable, used in (
        ("", "", "cpu cuda12 cuda13 tpu"),
        (",", " , ", "cpu cuda12 cuda13 tpu"),
        ("cpu", "", "cpu"),
        ("cuda*", "", "cuda12 cuda13"),
        ("cuda", "", ""),
        ("*", "", "cpu cuda12 cuda13 tpu"),
        ("*12", "", "cuda12"),
        ("c*u*", "", "cpu cuda12 cuda13"),
        ("*u", "", "cpu tpu"),
        ("c*3", "", "cuda13"),
        ("**u**a*", "", "cuda12 cuda13"),
        ("cpu*", "", "cpu"),
        ("cpu,tpu", "", "cpu tpu"),
        (" cpu , tpu ", "", "cpu tpu"),
        ("\tcpu \t, \ttpu", "", "cpu tpu"),
        ("\u00a0cpu", "", ""),
        ("cpu\u00a0,tpu", "", "tpu"),
        ("\u2003cpu,\vtpu\f", "", ""),
        ("", "\u00a0cpu", "cpu cuda12 cuda13 tpu"),
        ("?pu", "", ""),
        ("[ct]pu", "", ""),
        ("cud.*", "", ""),
        ("CPU", "", ""),
        ("none", "", ""),
        ("", "cpu", "cuda12 cuda13 tpu"),
        ("", "cuda*", "cpu tpu"),
        ("", "*", ""),
        ("", "?pu", "cpu cuda12 cuda13 tpu"),
        ("", "cpu,cuda12", "cuda13 tpu"),
        ("cuda*", "cuda12", "cuda12 cuda13"),
        ("cuda*", "*", "cuda12 cuda13"),
        ("", "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", "cpu cuda12 cuda13 tpu"),
    ):
        reason = selected if select.strip(", ") else denied
        lines = [
            usable(name) if name in used.split() else f"disabled {name} {reason}"
            for name in ("cpu", "cuda12", "cuda13", "tpu")
        ]
        env = {
            "PJRT_PLUGIN_MANIFESTS": "{root}/m",
            "PJRT_HUB_SELECT": select,
            "PJRT_HUB_DISABLE": disable,
        }
        yield Case(f"disabled: {select!r}, {disable!r}", {**files, **LIB}, tuple(lines), env)
    env = {"PJRT_PLUGIN_MANIFESTS": "{root}/a:{root}/b", "PJRT_HUB_DISABLE": "toy"}
    both = {"a/toy.toml": "not read", "b/toy.toml": TOY, **LIB}
    lines = (f"disabled toy {denied}", "hidden toy {root}/b/toy.toml")
    yield Case("disabled: it is not read, and hides", both, lines, env)
    env = {"PJRT_PLUGIN_MANIFESTS": "{root}/m", "PJRT_HUB_DISABLE": "*12"}
    yield Case(
        "disabled: another platform",
        {"m/a12.toml": toy("a12", "a"), "m/b.toml": toy("b", "a12"), **LIB},
        (f"disabled a12 {denied}", usable("b", "a12")),
        env,
    )


def place_cases() -> Iterator[Case]:
    yield from folder_cases()
    yield from name_cases()
    yield from trust_cases()
    yield from library_cases()
    yield from hardware_cases()
    yield from disabled_cases()
