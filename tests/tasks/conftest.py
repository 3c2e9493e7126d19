from tests.example_task import source, task  # noqa: F401
