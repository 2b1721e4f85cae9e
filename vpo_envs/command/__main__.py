"""``python -m vpo_envs.command`` is ``vpo`` with the commands of the environments alone."""

import sys

from vpo_envs.command import main

sys.exit(main())
