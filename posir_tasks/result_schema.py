"""The form of a result: its keys and its schema version."""

#: Version of a subset's scores, and of the profile and the window coverage in them. A reader refuses a newer one.
SCHEMA = 1
#: Keys of a subset's scores: the profile, what the model's window covers of it, and what was read and run.
PROFILE_KEY, COVERAGE_KEY, RUN_KEY = "position_profile", "window_coverage", "position_run"
#: Key of the ranks by document.
RANKS_KEY = "document_ranks"
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
