"""``python -m vpo_agent.command`` is ``vpo``."""

import sys

from vpo_agent.command import main

sys.exit(main())
