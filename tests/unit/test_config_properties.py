"""`.properties` files are read as Java reads them: what is expected here is what Java 17's own reader gave."""

from __future__ import annotations

from mirror_lib.config.document import read_properties

# What is written, and what is read of it, if it is not a comment.
CORPUS = [
    (b"# comment\n! other\n", None),
    (b"a=1\n", ("a", "1")),
    (b"b = 2  \n", ("b", "2  ")),  # blanks at the end of a value count
    (b"c:3\n", ("c", "3")),
    (b"d 4\n", ("d", "4")),
    (rb"e\ f = 5" + b"\n", ("e f", "5")),
    (rb"g\=h\:i=6" + b"\n", ("g=h:i", "6")),
    (b"  j   =   7\n", ("j", "7")),
    (b"k = one, \\\n    two, \\\n      three\n", ("k", "one, two, three")),
    (b"l\n", ("l", "")),
    (b"m=\n", ("m", "")),
    (rb"n = \u00e9\u20ac" + b"\n", ("n", "\u00e9\u20ac")),
    (rb"o = tab\tnew\nq\q" + b"\n", ("o", "tab\tnew\nqq")),
    (rb"p = a\\b \\. \.x" + b"\n", ("p", "a\\b \\. .x")),
    (rb"q = x \\" + b"\n", ("q", "x \\")),
    (b"r = # not a comment\n", ("r", "# not a comment")),
    (b"s = a=b:c\n", ("s", "a=b:c")),
    (rb"u->v.topics = .*[\-\.]internal" + b"\n", ("u->v.topics", ".*[-.]internal")),
    (b"w = trail\\\n# still value\n", ("w", "trail# still value")),
    (b"x\\\ny = cont key\n", ("xy", "cont key")),
    (b"= emptykey\n", ("", "emptykey")),
    (rb"z = \uD83D\uDE00" + b"\n", ("z", "\U0001f600")),
    (b"aa = d\xe9\n", ("aa", "d\u00e9")),
    (b"bb = end\\\r\ncc = crlf\r\n", ("bb", "endcc = crlf")),
    (b"dd = cr\r", ("dd", "cr")),
    (b"ee\tff\n\n", ("ee", "ff")),
    (b"\\\n gg=1\n", ("gg", "1")),
    (b"hh=last\\", ("hh", "last")),
]


def test_keys_and_values_are_javas_and_lines_are_counted_through_continuations_and_every_line_end() -> None:
    found = read_properties(b"".join(written for written, _ in CORPUS), "x.properties")
    assert {one.key: one.value for one in found} == dict(expected for _, expected in CORPUS if expected)
    lines = {one.key: int(one.place.partition(":")[2]) for one in found}
    assert (lines["a"], lines["k"], lines["l"]) == (3, 10, 13)
    assert (lines["bb"], lines["dd"], lines["ee"], lines["hh"]) == (29, 31, 32, 36)
