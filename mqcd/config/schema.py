"""The whole shape of a configuration file; what is not in it is unknown, unless `pending` names it."""

from mqcd.config.blocks import shape
from mqcd.config.settings import Settings

ROOT = shape(Settings, "mailserver")
