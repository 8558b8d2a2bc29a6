"""The form of a result: its keys and its schema version."""

#: Version of a subset's scores, and of the profile in them. A reader refuses a newer one.
SCHEMA = 1
#: Keys of a subset's scores: the profile, and the data and settings of the run.
PROFILE_KEY, RUN_KEY = "position_profile", "position_run"
#: Keys of the ranks by document, of the places of the evidence in what the model reads, and of the documents' digests.
RANKS_KEY, READ_RANKS_KEY, KEYS_KEY = "document_ranks", "read_ranks", "document_keys"
#: Keys for the part of a text that the model reads, and for the tokens of the corpus that it reads.
READ_KEY, TOKENS_READ_KEY = "read", "tokens_read"
#: Keys that are kept for evidence in several places, for judgments without spans, and for how a paper ran a model.
KEPT_KEYS = ("places", "judgments", "protocol")
#: Key of the run for the names of the scores that plugins gave.
SCORE_NAMES_KEY = "plugin_score_names"
#: Keys of the run for the revision of the data, and for the digests of its content: `corpus` and `queries`.
REVISION_KEY, DIGEST_KEY = "data_revision", "data_digest"
#: Key of the run for the number of documents, and of the vectors that they have in the index; absent if they have one each, or
#: none.
INDEX_KEY = "index"
#: Key of the run for the numbers of rows of the data that break a rule and are tolerated, by the rule; those of subsets add.
TOLERATED_KEY = "tolerated"
#: Key of the run for the counts that a search model states of its search, by name; absent for most models.
SEARCH_KEY = "search"
#: Keys of a subset's entry that are no scores.
NO_SCORES = frozenset(
    (
        *(PROFILE_KEY, RANKS_KEY, READ_KEY, READ_RANKS_KEY, KEYS_KEY, TOKENS_READ_KEY, RUN_KEY, *KEPT_KEYS),
        *("main_score", "hf_subset", "languages", "mteb_version"),
    )
)
