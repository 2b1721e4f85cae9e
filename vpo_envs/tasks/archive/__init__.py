"""Questions whose documents must be opened: the environment replies, and every document costs something."""

from vpo_envs.tasks.archive.compact import ArchiveCompactEnv as ArchiveCompactEnv
from vpo_envs.tasks.archive.env import ArchiveEnv as ArchiveEnv
from vpo_envs.tasks.archive.paper import ArchivePaperEnv as ArchivePaperEnv
