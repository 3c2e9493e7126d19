from pathlib import Path, PurePosixPath

import pytest

from components.core.errors import DataError
from components.data.ingestion.builtin import docstrings
from components.data.ingestion.builtin.docstrings import locate, python_files

SOURCE = b'''
"""The module.

    Heading
    -------
    Indented on.

    ====  ====
    one   two
    ====  ====
"""
import os

@deprecated_doc("short", see="A decorator's documentation, long enough to count as text and not as a name at all.")
class First:
    """First, with a \\x0c form feed."""

    if os.name:
        def conditional(self):
            """Inside an if."""

    def method(self):
        """A method.

        {placeholder}
        %(params)s
        Ends here.
        """
        text = "not documentation, though it is a long string that stands inside a function of a class"

add_newdoc("numpy", "abs", ("""
    The documentation of a function written in C, which is handed to a call.

    Its {{braces}} are doubled. """ + r"""It goes on in another literal.
    """).format(**common))
log("A long message that is handed to some other call, whose name does not say that it is documentation at all")
_shared_docs["x"] = "A template of documentation that several functions share, %(with)s a placeholder inside."
message = "A long string that is bound to a name which does not say that it is documentation, so it is left out."

async def last():
    """Last."""
'''


def test_documentation_is_extracted_in_file_order():
    assert docstrings.extract(SOURCE) == [
        ["The module.\n\nHeading\nIndented on.\n\none   two"],
        [
            "A decorator's documentation, long enough to count as text and not as a name at all.",
            "First, with a   form feed.",
            "Inside an if.",
            "A method.\n\nEnds here.",
        ],
        [
            "The documentation of a function written in C, which is handed to a call.\n\n"
            "Its {braces} are doubled. It goes on in another literal."
        ],
        ["A template of documentation that several functions share, %(with)s a placeholder inside."],
        ["Last."],
    ]


def test_source_that_does_not_parse_has_no_documentation():
    assert docstrings.extract(b'def f[T](x): pass\n"""x"""\nprint \'old\'') == []
    assert docstrings.extract(b'"""nul \0"""') == []
    assert docstrings.extract(b"") == []


def test_documents_are_split_between_definitions():
    path = PurePosixPath("pkg/a.py")
    seen: set[bytes] = set()
    long = ["x" * 5_000, "y" * 5_000]
    groups = [["module"], long, ["after", "last"], ["module"], [str(n) * 20_000 for n in range(3)]]
    documents = list(docstrings._cut(path, groups, seen))
    assert [document["id"] for document in documents] == ["pkg/a.py#0", "pkg/a.py#1", "pkg/a.py#2"]
    assert documents[0]["text"] == "\n\n".join(["module", *long])
    assert documents[1]["text"] == "\n\n".join(["after", "last", "0" * 20_000, "1" * 20_000])
    assert documents[2]["text"] == "2" * 20_000
    assert list(docstrings._cut(path, groups, seen)) == []


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("numpy/linalg/_linalg.py", True),
        ("numpy/lib/_function_base_impl.py", True),
        ("numpy/tests/test_x.py", False),
        ("numpy/__config__.py", False),
        ("torch/version.py", False),
        ("torch/_version_meson.py", False),
        ("ray/thirdparty_files/psutil/__init__.py", False),
        ("mlflow/protos/service_pb2.py", False),
        ("scipy/_distributor_init_local.py", False),
    ],
)
def test_files_that_differ_between_builds_are_skipped(path: str, wanted: bool) -> None:
    assert docstrings._wanted(PurePosixPath(path)) is wanted


def test_files_of_a_distribution_are_sorted():
    files = python_files("pluggy")
    assert PurePosixPath("pluggy/_hooks.py") in files
    assert files == sorted(files, key=lambda path: path.parts)
    assert all((locate("pluggy") / path).is_file() for path in files)
    with pytest.raises(DataError, match="built-in data: package 'no-such-package' is not installed; install the"):
        python_files("no-such-package")


def test_every_package_of_the_list_is_locked():
    lock = (Path(__file__).parents[3] / "requirements.lock").read_text().lower().replace("_", "-")
    assert [name for name in docstrings.PACKAGES if f"\n{name.lower().replace('_', '-')}==" not in f"\n{lock}"] == []
