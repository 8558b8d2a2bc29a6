"""Upload of a site to a static Space of the Hub."""

from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from posir_leaderboard.board.folder import check_site
from posir_leaderboard.hub import ADVICE, CONNECTION_ERRORS
from posir_tasks.errors import PosirError

#: Files that are never deleted.
PROTECTED = {".gitattributes"}


def push_site(folder: Path, space: str) -> CommitInfo:
    """Upload a site to a static Space `ORG/NAME`, created if missing, in one commit of the changed files.

    Raises:
        PosirError: There is no site, or the Hub refuses it.
    """
    check_site(folder)
    api = HfApi()
    try:
        api.create_repo(space, repo_type="space", space_sdk="static", exist_ok=True)
        files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.is_file()}
        earlier = set(api.list_repo_files(space, repo_type="space")) - files.keys() - PROTECTED
        # Not `upload_folder`, which makes several commits of a large folder; visitors would see an inconsistent page.
        return api.create_commit(
            space,
            [
                *(CommitOperationAdd(path, file) for path, file in files.items()),
                *(CommitOperationDelete(path) for path in sorted(earlier)),
            ],
            commit_message="Update the leaderboard",
            repo_type="space",
        )
    except HfHubHTTPError as error:
        status = error.response.status_code
        # Without the server's message, which may repeat the token.
        raise PosirError(f"{space}: HTTP {status}. {ADVICE.get(status, 'Repeating the command is safe.')}") from None
    except (HFValidationError, OfflineModeIsEnabled) as error:
        raise PosirError(f"{space}: {error}") from None
    except CONNECTION_ERRORS as error:
        raise PosirError(f"{space}: no response ({type(error).__name__}). Repeating the command is safe.") from None
