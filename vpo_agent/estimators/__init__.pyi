from .catalogue import Advantages as Advantages
from .catalogue import Estimator as Estimator
from .catalogue import RewardGroups as RewardGroups
from .catalogue import advantages as advantages
from .catalogue import available_estimators as available_estimators
from .catalogue import estimator as estimator
from .catalogue import register_estimator as register_estimator
from .catalogue import standardise as standardise
