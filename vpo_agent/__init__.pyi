from .config import Job as Job
from .config import TrainConfig as TrainConfig
from .config import make_config as make_config
from .config import read_config as read_config
from .errors import TrainingDiverged as TrainingDiverged
from .estimators import Advantages as Advantages
from .estimators import advantages as advantages
from .estimators import available_estimators as available_estimators
from .estimators import register_estimator as register_estimator
from .estimators import standardise as standardise
from .estimators.losses import policy_loss as policy_loss
from .estimators.reward_groups import RewardGroups as RewardGroups
from .estimators.weights import draw_weights as draw_weights
from .estimators.weights import prompt_key as prompt_key
from .job import train_and_report as train_and_report
from .measure.measures import measures as measures
from .measure.pool import Pool as Pool
from .measure.sampling import sample_pool as sample_pool
from .policy.language_model import LMPolicy as LMPolicy
from .policy.samples import Samples as Samples
from .rollouts.backends import register_backend as register_backend
from .rollouts.collect import Rollouts as Rollouts
from .rollouts.collect import collect as collect
from .rollouts.collect import make_text_env as make_text_env
from .trainer import Trainer as Trainer

__version__: str
