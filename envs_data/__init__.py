"""Bundled data: the tiny models, so that everything runs with nothing downloaded."""

from envs_data.models import BUNDLED_MODELS, bundled_model_path
from envs_data.version import __version__

__all__ = ["BUNDLED_MODELS", "__version__", "bundled_model_path"]
