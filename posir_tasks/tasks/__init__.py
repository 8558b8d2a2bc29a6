"""The task classes, made from the tables of languages and datasets."""

# While mteb is imported it asks for these classes, so importing one of them must not be what starts mteb's import.
import mteb  # noqa: F401
