"""`.properties` files are read as Java reads them: what is expected here is what Java 17's own reader gave."""

from __future__ import annotations

from typing import Dict

from mirror_lib.config.document import read_properties

CORPUS = rb"""# comment
! other
a=1
b = 2
c:3
d 4
e\ f = 5
g\=h\:i=6
  j   =   7
k = one, \
    two, \
      three
l
m=
n = \u00e9\u20ac
o = tab\tnew\nq\q
p = a\\b \\. \.x
q = x \\
r = # not a comment
s = a=b:c
u->v.topics = .*[\-\.]internal
w = trail\
# still value
x\
y = cont key
= emptykey
z = \uD83D\uDE00
"""
CORPUS = CORPUS.replace(b"b = 2\n", b"b = 2  \n")  # blanks at the end of a value count
CORPUS += b"aa = d\xe9\nbb = end\\\r\ncc = crlf\r\ndd = cr\ree\tff\n\n\\\n gg=1\nhh=last\\"

AS_JAVA: Dict[str, str] = {
    "a": "1",
    "b": "2  ",
    "c": "3",
    "d": "4",
    "e f": "5",
    "g=h:i": "6",
    "j": "7",
    "k": "one, two, three",
    "l": "",
    "m": "",
    "n": "\u00e9\u20ac",
    "o": "tab\tnew\nqq",
    "p": "a\\b \\. .x",
    "q": "x \\",
    "r": "# not a comment",
    "s": "a=b:c",
    "u->v.topics": ".*[-.]internal",
    "w": "trail# still value",
    "xy": "cont key",
    "": "emptykey",
    "z": "\U0001f600",
    "aa": "d\u00e9",
    "bb": "endcc = crlf",
    "dd": "cr",
    "ee": "ff",
    "gg": "1",
    "hh": "last",
}


def test_keys_and_values_are_javas() -> None:
    found = read_properties(CORPUS, "x.properties")
    assert {one.key: one.value for one in found} == AS_JAVA


def test_lines_are_counted_through_continuations_and_every_line_end() -> None:
    lines = {one.key: int(one.place.partition(":")[2]) for one in read_properties(CORPUS, "x.properties")}
    assert (lines["a"], lines["k"], lines["l"]) == (3, 10, 13)
    assert (lines["bb"], lines["dd"], lines["ee"], lines["hh"]) == (29, 31, 32, 36)
