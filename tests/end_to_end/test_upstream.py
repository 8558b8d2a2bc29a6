"""mteb with the patch in docs/upstream knows the tasks without autoload."""

import shutil
import subprocess
import sys
from pathlib import Path

import mteb
import pytest

from tests.support.commands import CLEAN, run_process

PATCH = Path(__file__).parents[2] / "docs" / "upstream" / "mteb-tasks.patch"
CODE = (
    "import mteb; print(mteb.__file__, mteb.get_task('PosIR-Mini').metadata.name, "
    "sum(task.metadata.name == 'PosIR-Mini' for task in mteb.get_tasks()))"
)


@pytest.mark.slow
@pytest.mark.parametrize("autoload", ["0", "1"])
def test_a_patched_mteb_knows_the_tasks_once(tmp_path, autoload):
    shutil.copytree(Path(mteb.__file__).parent, tmp_path / "mteb")
    subprocess.run(["git", "apply", "--unidiff-zero", str(PATCH)], cwd=tmp_path, check=True)
    environment = CLEAN | {"PYTHONPATH": str(tmp_path), "POSIR_AUTOLOAD": autoload}
    done = run_process(sys.executable, "-c", CODE, env=environment)
    assert done.stdout.split() == [str(tmp_path / "mteb" / "__init__.py"), "PosIR-Mini", "1"], done.stderr
    assert "posir: " not in done.stderr
