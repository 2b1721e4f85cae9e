"""The registry of estimators with the built-in ones entered."""

from vpo_agent.estimators import pooling  # noqa: F401 - it registers the estimators
from vpo_agent.estimators.registry import Advantages as Advantages
from vpo_agent.estimators.registry import Estimator as Estimator
from vpo_agent.estimators.registry import advantages as advantages
from vpo_agent.estimators.registry import available_estimators as available_estimators
from vpo_agent.estimators.registry import estimator as estimator
from vpo_agent.estimators.registry import register_estimator as register_estimator
from vpo_agent.estimators.registry import standardise as standardise
from vpo_agent.estimators.reward_groups import RewardGroups as RewardGroups
