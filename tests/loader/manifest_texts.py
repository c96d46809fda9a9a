"""Texts that are, or are not, in the subset of TOML; each with the message."""

from __future__ import annotations

from collections.abc import Iterator

from manifest_trees import HEAD, LIBRARY, TOY, USABLE, Case, one, refused

#: Why a line is refused -> such lines, each after the first three of a manifest.
SYNTAX: dict[str, dict[str, str | bytes]] = {
    "not UTF-8": {
        "latin-1": b"# caf\xe9",
        "a lone continuation byte": b'a = "\x80"',
        "an overlong slash": b'a = "\xc0\xaf"',
        "an overlong NUL": b'a = "\xc0\x80"',
        "an overlong euro": b'a = "\xf0\x82\x82\xac"',
        "a surrogate in UTF-8": b'a = "\xed\xa0\x80"',
        "beyond Unicode": b'a = "\xf4\x90\x80\x80"',
        "five bytes": b'a = "\xf8\x88\x80\x80\x80"',
        "a character cut off": b'a = "\xe2\x82"',
        "not UTF-8 and a control character": b"a = \x01\xff",
    },
    "a control character": {
        "NUL": b"a = 1\x00",
        "NUL in a comment": b"# a\x00b",
        "BEL in a string": b'a = "\x07"',
        "ESC in a literal": b"a = '\x1b[0m'",
        "DEL": b"# \x7f",
        "a form feed": b"\x0c",
        "a lone CR": b"a = 1\rb = 2",
        "CR CR LF": b"a = 1\r\r\n",
        "CR at the end of the file": b"a = 1\r",
    },
    "expected [name], [[name]] or [name.name]": {
        "no header": "[]",
        "an open header": "[a",
        "a header with blanks": "[ a ]",
        "a header with quotes": '["a"]',
        "a header with three names": "[a.b.c]",
        "a header that ends with a dot": "[a.]",
        "a header that begins with a dot": "[.a]",
        "a header with a letter": "[é]",
        "a header of 65": f"[{'a' * 65}]",
        "a header with one bracket less": "[[a]",
        "an array of tables in a table": "[[a.b]]",
        "an empty array of tables": "[[]]",
    },
    "expected the end of the line": {
        "a header and more": "[a] b",
        "a header and a pair": "[a] b = 1",
        "a header with one bracket more": "[a]]",
        "a bracket more in an array": "[[a]]]",
        "a quote in a literal": "a = 'it''s'",
        "three quotes": 'a = """b"""',
        "three apostrophes": "a = '''b'''",
        "a comma after a string": 'a = "b",',
        "two values": "a = 1 2",
        "an underscore": "a = 1_000",
        "a zero first": "a = 01",
        "a zero after the sign": "a = -01",
        "hexadecimal": "a = 0xff",
        "octal": "a = 0o17",
        "binary": "a = 0b1",
        "a point last": "a = 1.",
        "a point and an exponent": "a = 1.e5",
        "half an exponent": "a = 1e",
        "half a signed exponent": "a = 1.5e+",
        "two points": "a = 1.2.3",
        "a zero before a float": "a = 00.5",
        "a comma for a point": "a = 1,5",
        "a date": "a = 1979-05-27",
        "a time": "a = 07:32:00",
        "true and more": "a = truest",
        "a bracket after an array": "a = [1]]",
        "a string and a word": 'a = "b"c',
    },
    "expected a name of 1 to 64 of [A-Za-z0-9_-]": {
        "a key with quotes": '"a" = 1',
        "a key in apostrophes": "'a' = 1",
        "no key": "= 1",
        "a key with a letter": "é = 1",
        "a key of 65": f"{'k' * 65} = 1",
        "a key of a full-width digit": "\uff11 = 1",
        "a no-break space": "\u00a0a = 1",
        "a second mark": "\ufeffa = 1",
        "an open table": "a = {",
        "a comma at the end of a table": "a = {b = 1, }",
        "a quoted key in a table": 'a = {"b" = 1}',
    },
    "expected =": {
        "a dotted key": "a.b = 1",
        "a key alone": "a",
        "a key and a comment": "a # = 1",
        "a colon": "a: 1",
        "two keys": "a b = 1",
        "a dotted key in a table": "a = {b.c = 1}",
        "a key alone in a table": "a = {b}",
        "a colon in a table": "a = {b: 1}",
    },
    "expected a string, a number, true, false, an array or a table": {
        "no value": "a =",
        "a comment for a value": "a = # 1",
        "a word": "a = yes",
        "True": "a = True",
        "a letter of a word": "a = t",
        "two equals": "a == 1",
        "infinity": "a = inf",
        "less than nothing": "a = -inf",
        "no number": "a = nan",
        "a point first": "a = .5",
        "a sign alone": "a = -",
        "two signs": "a = --1",
        "an array in an array": "a = [[1]]",
        "a table in an array": "a = [{b = 1}]",
        "a table in a table": "a = {b = {}}",
        "many brackets": f"a = {'[' * 5000}",
        "many braces": "a = " + "{a = " * 5000,
        "an array that is open": "a = [",
        "an array of two lines": "a = [\n1]",
        "a comma at the end": "a = [1, ]",
        "a comma alone": "a = [,]",
        "a comma and a word": "a = [1, x]",
    },
    "a string without an end": {
        "an open string": 'a = "b',
        "an open literal": "a = 'b",
        "an empty open string": 'a = "',
        "an escaped quote at the end": 'a = "\\"',
        "a string of two lines": 'a = "b\nc"',
        "an open string in an array": 'a = ["b]',
    },
    "expected , or ]": {
        "three quotes in an array": 'a = ["""b"""]',
        "a space in an array": "a = [1 2]",
        "an array ended by a brace": "a = [1}",
        "a comment in an array": "a = [1 # 2]",
    },
    "an escape that stands for no character": {
        "a backslash at the end": 'a = "\\',
        "an unknown escape": 'a = "\\a"',
        "an escape of a later TOML": 'a = "\\e"',
        "another escape of a later TOML": 'a = "\\x41"',
        "an octal escape": 'a = "\\101"',
        "an escaped slash": 'a = "\\/"',
        "an escaped blank": 'a = "\\ "',
        "three digits": 'a = "\\u123"',
        "seven digits": 'a = "\\U0001F60"',
        "no digits": 'a = "\\u00g0"',
        "a sign for a digit": 'a = "\\u+041"',
        "an escaped NUL": 'a = "\\u0000"',
        "a long escaped NUL": 'a = "\\U00000000"',
        "a high surrogate": 'a = "\\uD83D"',
        "a pair of surrogates": 'a = "\\ud83d\\ude00"',
        "a low surrogate": 'a = "\\uDFFF"',
        "a long surrogate": 'a = "\\U0000D800"',
        "an escape beyond Unicode": 'a = "\\U00110000"',
        "the largest escape": 'a = "\\UFFFFFFFF"',
    },
    "an integer of more than 64 bits": {
        "one more than 63 bits": "a = 9223372036854775808",
        "one less than 63 bits": "a = -9223372036854775809",
        "64 bits without a sign": "a = 18446744073709551616",
        "five thousand digits": "a = " + "9" * 5000,
        "many digits and a letter": "a = 99999999999999999999x",
        "a number of 65 bits in an array": "a = [36893488147419103232]",
    },
    "expected , or }": {
        "a space in a table": "a = {b = 1 c = 2}",
        "a table ended by a bracket": "a = {b = 1]",
        "a table without an end": "a = {b = 1",
    },
    "given twice": {
        "a key twice": "name = 1",
        "a key twice in a table": "a = {b = 1, b = 1}",
        "a table of a value": "[name]",
        "a table in a value": "[name.b]",
        "an array of a value": "[[name]]",
    },
}
#: Of several lines, the last of which is wrong.
TWICE = {
    "a table": ("[a]", "[a]"),
    "an inner table": ("[a.b]", "[a.b]"),
    "a table after its inner one": ("[a.b]", "[a]"),
    "an array as a table": ("[[a]]", "[a]"),
    "an array as an outer table": ("[[a]]", "[a.b]"),
    "a table as an array": ("[a]", "[[a]]"),
    "an outer table as an array": ("[a.b]", "[[a]]"),
    "an inline table as a table": ("a = {}", "[a]"),
    "an inline table as an outer one": ("a = {}", "[a.b]"),
    "an array of values as an array of tables": ("a = []", "[[a]]"),
    "an inner table of a value": ("[a]", "b = 1", "[a.b]"),
    "an inner table of an inline table": ("[a]", "b = {}", "[a.b]"),
    "a key in a table": ("[a]", "b = 1", "b = 2"),
    "a key of another type": ("[a]", "b = 1", "b = []"),
    "a key in the same table of an array": ("[[a]]", "b = 1", "b = 1"),
}
#: What is taken, though it looks odd; each is followed by the library.
TAKEN: dict[str, str | bytes] = {
    "a comment": "# a = \t[é]",
    "an empty line of blanks": " \t ",
    "a comment after all": "a = 1 # b\n[b] # c\n[[c]]\t#\n",
    "no blanks": "a=1\nb='2'\nc=[3,4]\nd={e=5,f=[6]}",
    "many blanks": "  a \t=\t 1 \n\tc = [ 3 , 4 ] \n d = { e = 5 , f = [ ] } \n  [x]  ",
    "empty values": "a = ''\nb = \"\"\nc = []\nd = {}\n[e]\n[[f]]",
    "a key of 64": f"{'k' * 64} = 1\n[{'t' * 64}.{'u' * 64}]",
    "keys of digits and dashes": "1 = 1\n- = 2\n_ = 3\n1-2 = 4\n[--]\n[0.1]",
    "63 bits": "a = 9223372036854775807\nb = -9223372036854775808\nc = +0\nd = -0",
    "floats": "a = 1.5\nb = -0.0\nc = +1e5\nd = 1E-5\ne = 0e0\nf = 6.02e+23\ng = 1e999",
    "escapes": 'a = "\\" \\\\ \\b \\t \\n \\f \\r \\u00e9 \\uFFFF \\U0001F600 \\U0010ffff"',
    "a backslash in a literal": "a = 'C:\\new'",
    "quotes in strings": "a = '\"'\nb = \"'\"\nc = [\"#\", '#'] # d",
    "Unicode": 'a = "Привет, 世界 😀 \u202e"\nb = "\ufeff" # \u0085\u2028',
    "a tab in a string": 'a = "b\tc"',
    "an array of all": "a = [1, 1.5, true, 'b', \"c\"]",
    "brackets in a string": 'a = "]"\nb = "[x]"\nc = "{"',
    "a table and its inner ones": "[a]\nb = 1\n[a.c]\nb = 1\n[a.d]\n[e.f]\n[e.g]",
    "the same key in two tables": "[a]\nb = 1\n[c]\nb = 1\n[[d]]\nb = 1\n[[d]]\nb = 1",
    "equals in a string": "a = 'b = c'",
    "a long line": f"a = [{', '.join(['1'] * 9000)}]",
    "a long comment": "#" * 30000,
    "a long string": f"a = '{'x' * 30000}'",
    "a thousand keys": "\n".join(f"k{each} = {each}" for each in range(1000)),
    "a thousand tables": "\n".join(f"[t{each}]" for each in range(1000)),
    "CRLF": b"# a\r\nb = 1\r\n[c]\r\n\r\n",
    "both ends of lines": b"# a\r\nb = 1\n\n\r\n[c]",
}


def text_cases() -> Iterator[Case]:
    for reason, family in SYNTAX.items():
        for name, line in family.items():
            raw = line if isinstance(line, bytes) else line.encode()
            # Of a value over two lines the first is wrong, of a CR the last byte of the file.
            yield refused(f"text: {name}", HEAD.encode() + raw, f"line 4: {reason}")
    for name, lines in TWICE.items():
        text = HEAD + "\n".join(lines)
        yield refused(f"twice: {name}", text, f"line {3 + len(lines)}: given twice")
    for name, taken in TAKEN.items():
        raw = taken if isinstance(taken, bytes) else taken.encode()
        yield one(f"taken: {name}", HEAD.encode() + raw + b"\n" + LIBRARY.encode(), USABLE)
    whole = TOY.encode()
    yield one("text: no end of the last line", whole[:-1], USABLE)
    yield one("text: a comment without an end", whole + b"# a", USABLE)
    yield one("text: CRLF everywhere", whole.replace(b"\n", b"\r\n"), USABLE)
    yield refused("text: a byte order mark", b"\xef\xbb\xbf" + whole, "line 1: a byte order mark")
    yield refused("text: UTF-16", TOY.encode("utf-16"), "line 1: not UTF-8")
    yield refused("text: CR alone", whole.replace(b"\n", b"\r"), "line 1: a control character")
    yield refused("text: a library", b"\x7fELF\x02\x01\x01\x00", "line 1: a control character")
    yield refused("text: empty", "", "schema: not there, expected an integer")
    yield refused("text: only a comment", "# a", "schema: not there, expected an integer")
    yield refused("text: the line counts empty ones", HEAD + "\n\n\r\n\na", "line 8: expected =")
    beside = f"{HEAD}[[library]]\npath = 'lib.so'\n".encode()
    large = b"#" * (65_536 - len(beside) - 1) + b"\n" + beside
    line = USABLE.replace("lib/toy", "m/lib")
    yield Case("text: 65,536 bytes", {"m/toy.toml": large, "m/lib.so": b""}, (line,))
    too = "cannot be read: larger than 65,536 bytes"
    yield refused("text: 65,537 bytes", b"#" + large, too)
    yield refused("text: a mebibyte", b"a" * (1 << 20), too)
    yield refused("text: 65,537 bytes of NUL", bytes(65_537), too)
