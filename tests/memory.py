"""How much memory a piece of code takes, in a process that may not take more than it is given."""

from __future__ import annotations

import os
import subprocess
import sys

from paths import ROOT, TESTS

_CHILD = """
import resource, sys
{imports}
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + {mebibytes} * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{code}
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def run_within(mebibytes: int, imports: str, code: str) -> tuple[str, int]:
    """Run statements with so much memory beside what their imports take.

    Return what they printed, and the MiB by which their memory grew.
    """
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(TESTS)])
    program = _CHILD.format(imports=imports, mebibytes=mebibytes, code=code)
    ran = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    *printed, grown = ran.stdout.splitlines()
    return "\n".join(printed), int(grown)
