from components.data.tasks.data import units_of


def test_copies_groups_and_documents_join_rows_also_through_others():
    keys = ["a", "b", "a", "c", "d", "e", "f", "g", "h"]
    groups = [None, "x", "x", None, None, None, None, None, None]
    documents = [None, None, None, 1, None, 1, None, None, None]
    assert units_of(keys, groups, documents).tolist() == [0, 0, 0, 1, 2, 1, 3, 4, 5]


def test_a_group_and_a_document_of_the_same_name_are_different():
    assert len({*units_of("abcd", ["1", "1", None, None], [None, None, "1", "1"])}) == 2


def test_copies_do_not_join_most_documents():
    keys = [f"text {row}" if row % 3 else "yes" for row in range(30)]
    documents = [row // 3 for row in range(30)]
    assert units_of(keys, [None] * 30, documents).tolist() == documents
