"""Patterns by the languages that read them: what the mirror takes must compile in Java."""

from __future__ import annotations

ALIKE = [
    "orders", ".*", r"sales\.(eu|us)", "[a-z]+[.]v[0-9]{1,3}", "a{2}", "a{2,}", "(?i)orders", "(?i:o)rders", "(?:a|b)",
    "(?!test).*", ".*(?<!test)", r"\d+\w\s?", "[]a]", "[^]a]", r"a\{b\}", r"[\w.-]+", r"(a)\1", "[a&b]",
]  # fmt: skip
PYTHON_ONLY = [
    "(?P<team>a)", "(?P<t>a)(?P=t)", "(?a)a", "(?a:b)", "a{,3}", "{team}", "a{}", "(?#note)a", "(a)?(?(1)b|c)",
    r"\N{LATIN SMALL LETTER A}", r"\U00000061", r"\141", r"[\b]", r"[\1]", "[a[b]", "[&&a]", "(?x)a #b", r"\0",
]  # fmt: skip
JAVA_ONLY = [r"\p{Lu}", "[a-z&&[^b]]", "[a[b]]", r"\Qa\E", "(?<team>a)", r"\h"]
